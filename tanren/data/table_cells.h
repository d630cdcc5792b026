// The cells of a table as inputs of a sample: numbers, categories and missing values. Shared by csv
// and by the rows to predict, so that both read a cell in the same way.
#pragma once

#include "tanren/base/table_encoding.h"
#include "tanren/config/run_config.h"

#include <memory>
#include <string>
#include <string_view>

namespace tanren {

// Why a cell gives no inputs.
enum class CellProblem { none, missing, no_number, out_of_range, not_finite, too_large };

// Whether a cell has no value: it is empty or NA, N/A, NaN, nan, NULL, null or ?. Blanks around it
// do not count.
bool is_missing(std::string_view cell);

// Reads a number such as 3.14 (with `decimal` ",": 3,14), -2e-3 or +5; blanks around it are
// skipped. The result may be infinite or NaN. Returns `none`, `no_number` or `out_of_range`.
CellProblem parse_number(std::string_view cell, const std::string& decimal, double& value);

// What is wrong with a cell, and what to do: "column a is empty; fill it or drop the row".
std::string cell_text(CellProblem problem, const std::string& column, std::string_view cell);

// Cells → inputs. Immutable, so thread-safe.
class CellEncoder {
 public:
  // Uses only the scale, offset and decimal point of `options`. If `options` has no decimal point,
  // training's applies.
  CellEncoder(std::shared_ptr<const TableEncoding> table, const SourceOptions& options);

  // Writes the inputs of a cell of column `index`, as many as the column is wide. A category turns
  // an unknown or missing text into zeros.
  CellProblem encode(size_t index, std::string_view cell, float* inputs) const;
  // The same for a number; NaN is a missing value.
  CellProblem encode(size_t index, double number, float* input) const;
  const TableEncoding& table() const { return *table_; }

 private:
  std::shared_ptr<const TableEncoding> table_;
  std::string decimal_;
  double scale_, offset_;
};

}  // namespace tanren
