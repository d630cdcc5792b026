#include "tanren/data/table_meter.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/table_cells.h"

#include <cmath>
#include <limits>
#include <utility>

namespace tanren {

namespace {

// Whether a variance is no more than the rounding of a column of one number, as scikit-learn's
// StandardScaler decides it.
bool is_constant(double variance, double mean, double count) {
  constexpr double kEps = std::numeric_limits<double>::epsilon();
  const double rounding = count * mean * kEps;
  return variance <= count * kEps * variance + rounding * rounding;
}

}  // namespace

TableMeter::TableMeter(TableEncoding& table, const std::vector<size_t>& places,
                       const SourceOptions& options, std::string what)
    : table_(table),
      places_(places),
      options_(options),
      what_(std::move(what)),
      measures_(places.size()) {}

void TableMeter::add(const TableFile& file) {
  for (size_t i = 0; i < places_.size(); ++i) {
    const std::string_view cell = trimmed(file.cells()[places_[i]]);
    Measure& measure = measures_[i];
    if (!table_.columns[i].is_category) {
      double number = 0;
      const bool is_number = parse_number(cell, table_.decimal, number) == CellProblem::none;
      if (!is_number || !std::isfinite(number)) {
        measure.is_broken |= !is_missing(cell);
        continue;
      }
      if (measure.count == 0) measure.first = number;
      const double offset = number - measure.first, before = offset - measure.mean;
      measure.mean += before / static_cast<double>(++measure.count);
      measure.squares += before * (offset - measure.mean);
      continue;
    }
    if (is_missing(cell) || measure.values.contains(cell)) continue;
    measure.values.emplace(cell);
    if (std::ssize(measure.values) <= kMostCategories) continue;
    file.fail(fmt::format(
        "column {} has more than {} different texts, too many for a category; take it out of "
        "{}.categories and add it to {}.ignore",
        one_line(table_.columns[i].name), kMostCategories, what_, what_));
  }
}

void TableMeter::finish(const TableFile& file) {
  for (size_t i = 0; i < measures_.size(); ++i) {
    TableColumn& column = table_.columns[i];
    const Measure& measure = measures_[i];
    const bool is_empty = measure.count == 0 && measure.values.empty() && !measure.is_broken;
    const bool is_needed = column.is_category || table_.standardizes || options_.missing == "mean";
    if (is_empty && is_needed) {
      file.fail(1, "column " + one_line(column.name) + " has no value in any row; add it to " +
                       what_ + ".ignore");
    }
    if (column.is_category) {
      column.values.assign(measure.values.begin(), measure.values.end());
      continue;
    }
    if (measure.count == 0) continue;
    const double mean = measure.first + measure.mean;
    if (options_.missing == "mean") column.fill = mean;
    if (!table_.standardizes) continue;
    const auto count = static_cast<double>(measure.count);
    const double variance = measure.squares / count;
    if (!std::isfinite(variance)) {
      file.fail(1, "the numbers of column " + one_line(column.name) +
                       " are too large to measure; scale them down");
    }
    column.mean = mean;
    column.deviation = is_constant(variance, mean, count) ? 1 : std::sqrt(variance);
  }
}

}  // namespace tanren
