// What the numbers of a batch may be: ids below the size of the table that they are looked up in,
// labels below the number of classes. Datasets check what they read; this looks at one batch again,
// on the host, when a model has stumbled over it. Called by train/ after a failed lookup.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/data_info.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tanren {

// By the name of a field: its whole numbers are in [0, bound). Labels may be -100 too: no label.
using FieldBounds = std::map<std::string, int64_t>;

// Of "inputs", "token_types" and "labels", as the data and the scores of the model (`classes`; 0:
// unknown) have them.
FieldBounds field_bounds(const DataInfo& info, int64_t classes);

struct BadValue {
  std::string field;
  int64_t sample = 0;     // its id: index in the dataset
  int64_t row = 0;        // in the batch
  int64_t position = -1;  // in the sample; -1: it is one number
  int64_t value = 0;
  int64_t bound = 0;

  // "labels holds 7 in sample 31 (number 4 of the batch), outside [0, 5)"
  std::string text() const;
};

// The first one, in the order of the fields' names. `host` is on the CPU; fields without a bound and
// floating ones are passed over.
std::optional<BadValue> find_bad_value(const Batch& host, const FieldBounds& bounds);

// "inputs 3 to 49, labels 0 to 4": what the whole-number fields hold, for the eye.
std::string ranges_text(const Batch& host);

}  // namespace tanren
