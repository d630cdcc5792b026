#include "tanren/data/table_cells.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <utility>

namespace tanren {

namespace {

constexpr std::string_view kMissing[] = {"", "NA", "N/A", "NaN", "nan", "NULL", "null", "?"};

CellProblem from_text(std::string_view text, double& value) {
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec == std::errc::result_out_of_range) return CellProblem::out_of_range;
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == end;
  return is_whole ? CellProblem::none : CellProblem::no_number;
}

}  // namespace

bool is_missing(std::string_view cell) {
  const std::string_view text = trimmed(cell);
  return std::find(std::begin(kMissing), std::end(kMissing), text) != std::end(kMissing);
}

CellProblem parse_number(std::string_view cell, const std::string& decimal, double& value) {
  std::string_view text = trimmed(cell);
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  if (decimal == ".") return from_text(text, value);
  if (text.find('.') != std::string_view::npos) return CellProblem::no_number;
  std::string with_point(text);
  std::replace(with_point.begin(), with_point.end(), decimal.front(), '.');
  return from_text(with_point, value);
}

std::string cell_text(CellProblem problem, const std::string& column, std::string_view cell) {
  const std::string where = "column " + one_line(column);
  const std::string shown = one_line(trimmed(cell)).substr(0, 40);
  if (problem == CellProblem::missing) {
    return where + " is " + (shown.empty() ? "empty" : shown) + "; fill it or drop the row";
  }
  if (problem == CellProblem::out_of_range) {
    return where + ": " + shown + " is too large or too small for a number here; scale it";
  }
  if (problem == CellProblem::too_large) {
    return where + ": " + shown + " is too large for a 32-bit float; scale it down";
  }
  if (problem == CellProblem::not_finite) {
    return where + " is " + shown + "; replace or drop non-finite values";
  }
  return where + ": \"" + shown + "\" is not a number; fix the cell";
}

CellEncoder::CellEncoder(std::shared_ptr<const TableEncoding> table, const SourceOptions& options)
    : table_(std::move(table)),
      decimal_(options.decimal.empty() ? table_->decimal : options.decimal),
      scale_(options.scale),
      offset_(options.offset) {}

CellProblem CellEncoder::encode(size_t index, std::string_view cell, float* inputs) const {
  const TableColumn& column = table_->columns[index];
  if (!column.is_category) {
    double number = 0;
    const CellProblem problem = parse_number(cell, decimal_, number);
    if (problem == CellProblem::none && !std::isnan(number)) return encode(index, number, inputs);
    if (is_missing(cell)) return encode(index, NAN, inputs);
    return problem == CellProblem::none ? CellProblem::not_finite : problem;
  }
  std::fill_n(inputs, column.values.size(), 0.0F);
  if (is_missing(cell)) return table_->fills ? CellProblem::none : CellProblem::missing;
  const std::string_view text = trimmed(cell);
  const auto found = std::lower_bound(column.values.begin(), column.values.end(), text);
  if (found != column.values.end() && *found == text) inputs[found - column.values.begin()] = 1;
  return CellProblem::none;
}

CellProblem CellEncoder::encode(size_t index, double number, float* input) const {
  const TableColumn& column = table_->columns[index];
  if (std::isnan(number)) {
    if (!table_->fills) return CellProblem::missing;
    number = column.fill;
  }
  if (!std::isfinite(number)) return CellProblem::not_finite;
  *input = static_cast<float>(table_->standardizes ? (number - column.mean) / column.deviation
                                                   : number * scale_ + offset_);
  return std::isfinite(*input) ? CellProblem::none : CellProblem::too_large;
}

}  // namespace tanren
