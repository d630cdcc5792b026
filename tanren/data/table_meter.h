// TableMeter: measures the training rows of a table: the different texts of each category, and the
// mean and standard deviation (fp64) of each column of numbers. Missing cells do not count. Called
// by the kind csv, only for the rows that are trained on.
#pragma once

#include "tanren/base/table_encoding.h"
#include "tanren/config/run_config.h"
#include "tanren/data/table_file.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tanren {

// A column with more different texts is probably not a category but a name for each row.
constexpr int64_t kMostCategories = 1000;

class TableMeter {
 public:
  // finish() fills in `table`. `places`: where its columns are in the file. All arguments but
  // `what` must outlive this object.
  TableMeter(TableEncoding& table, const std::vector<size_t>& places, const SourceOptions& options,
             std::string what);

  // Adds the file's last row. Skips cells that are not numbers; the encoder refuses them later and
  // names their line. DataError for a category with too many texts.
  void add(const TableFile& file);
  // DataError for a column without any value, if one is needed, and for numbers too large to
  // measure.
  void finish(const TableFile& file);

 private:
  struct Measure {
    int64_t count = 0;
    bool is_broken = false;  // some cell is neither a number nor missing
    double first = 0;        // numbers are measured from it, so that large ones lose no digits
    double mean = 0, squares = 0;  // squares: of the distances from the mean
    std::set<std::string, std::less<>> values;
  };

  TableEncoding& table_;
  const std::vector<size_t>& places_;
  const SourceOptions& options_;
  std::string what_;
  std::vector<Measure> measures_;
};

}  // namespace tanren
