// The tables of a quantisation's report, cell by cell, shared by its text and its page. Values that
// are unknown or not finite are "-". Names from outside are put on one line, but not escaped.
#pragma once

#include "tanren/page/table.h"
#include "tanren/post_training/quantize_report.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// The difference of a scheme's metric to fp32's in the unit of the tolerance. The interval is
// absent where no sample has the metric alone.
struct MetricChange {
  double mean = 0;
  std::optional<std::pair<double, double>> interval;
};
// Absent for fp32 itself, a scheme that was not measured, and numbers that are not finite.
std::optional<MetricChange> metric_change(const QuantizeReport& report, const SchemeResult& scheme);

// What was measured on what, and what was written; each of at most 100 columns a line.
std::vector<std::string> report_lines(const QuantizeReport& report);
Table scheme_table(const QuantizeReport& report);  // its note says why schemes were left out
Table time_table(const QuantizeReport& report);    // no rows: nothing was timed
Table remark_table(const QuantizeReport& report);  // has no rows: its note has the remarks
// All layers in the model's order, with readers and reasons, and a bar for each error.
Table layer_table(const QuantizeReport& report);
// The layers whose errors are largest, at most `most`; the note names those that stay.
Table worst_layer_table(const QuantizeReport& report, size_t most);

}  // namespace tanren
