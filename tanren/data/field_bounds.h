// Bounds on the whole numbers of a batch: ids are below the size of the table that they index,
// labels below the number of classes. Datasets check the values that they read; these functions
// check one batch again, on the host. Called by train/ after a lookup in a model failed.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/data_info.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tanren {

// Field name → bound: the field's whole numbers are in [0, bound). Labels may also be -100, which
// means no label.
using FieldBounds = std::map<std::string, int64_t>;

// The bounds of "inputs", "token_types" and "labels", from the data and from `classes`, the number
// of classes that the model scores (0: unknown).
FieldBounds field_bounds(const DataInfo& info, int64_t classes);

struct BadValue {
  std::string field;
  int64_t sample = 0;     // its id: index in the dataset
  int64_t row = 0;        // in the batch
  int64_t position = -1;  // in the sample; -1 if the field has one number a sample
  int64_t value = 0;
  int64_t bound = 0;

  // "labels holds 7 in sample 31 (row 4 of the batch), outside [0, 5)"
  std::string text() const;
};

// Returns the first bad value, in the order of the field names. `host` is on the CPU; fields
// without a bound and floating-point fields are skipped.
std::optional<BadValue> find_bad_value(const Batch& host, const FieldBounds& bounds);

// The ranges of the whole-number fields as text: "inputs 3 to 49, labels 0 to 4".
std::string ranges_text(const Batch& host);

}  // namespace tanren
