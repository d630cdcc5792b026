// TableMeter: what is learnt of the training rows of a table: the texts of each category, and of
// numbers the mean and the standard deviation in fp64, of the cells that are there. Called by the
// kind csv, for the rows that are trained on alone.
#pragma once

#include "tanren/base/table_encoding.h"
#include "tanren/config/run_config.h"
#include "tanren/data/table_file.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tanren {

// More different texts are no category, but a column that names each row.
constexpr int64_t kMostCategories = 1000;

class TableMeter {
 public:
  // Fills in `table` at the end. `places`: of its columns in the file. All but `what` must outlive
  // it.
  TableMeter(TableEncoding& table, const std::vector<size_t>& places, const SourceOptions& options,
             std::string what);

  // Adds the file's last row. Cells that are no numbers are left to the encoder, which refuses them
  // with their line. DataError for a category of too many texts.
  void add(const TableFile& file);
  // DataError for a column without a value, if one is needed.
  void finish(const TableFile& file);

 private:
  struct Measure {
    int64_t count = 0;
    bool is_broken = false;  // some cell is neither a number nor missing
    double first = 0;        // numbers are measured from it, so that large ones lose no digits
    double mean = 0, squares = 0;  // the latter of the distances from the mean
    std::set<std::string, std::less<>> values;
  };

  TableEncoding& table_;
  const std::vector<size_t>& places_;
  const SourceOptions& options_;
  std::string what_;
  std::vector<Measure> measures_;
};

}  // namespace tanren
