#include "tanren/post_training/report_tables.h"

#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/page/units.h"
#include "tanren/post_training/report_cells.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tanren {

namespace {

// "+0.25", "−0.25", "0.00".
std::string change_text(double value) {
  if (!std::isfinite(value)) return kUnknown;
  if (std::abs(value) < 0.005) return "0.00";
  return with_minus(fmt::format("{:+.2f}", value));
}

std::string known_time(double seconds) {
  return std::isfinite(seconds) ? time_text(seconds) : kUnknown;
}

std::string known_ratio(double ratio) {
  return std::isfinite(ratio) ? fixed_text(ratio, 2) : kUnknown;
}

std::string known_bytes(int64_t bytes) { return bytes > 0 ? size_text(bytes) : kUnknown; }

const SchemeResult* measured_scheme(const QuantizeReport& report, std::string_view name) {
  for (const SchemeResult& scheme : report.schemes) {
    if (scheme.name == name && scheme.not_measured.empty()) return &scheme;
  }
  return nullptr;
}

bool is_8_bit_scheme(const SchemeResult& scheme) {
  return scheme.name != "fp32" && scheme.name != "bf16";
}

bool is_refused(const SchemeResult& scheme) { return scheme.not_measured.starts_with(kRefused); }

std::string decision_of(const SchemeResult& scheme) {
  if (is_refused(scheme)) return "refused";
  if (!scheme.not_measured.empty()) return "left out";
  if (scheme.is_written) return "written";
  if (scheme.name == "fp32") return "";
  return scheme.is_within_tolerance ? "within" : "beyond";
}

// Why no 8-bit scheme is written: "beyond the tolerance: dynamic, static; refused: weights".
std::string reasons_text(const QuantizeReport& report) {
  using Reason = std::pair<const char*, const char*>;  // by the decision
  std::vector<std::string> reasons;
  for (const auto& [decision, reason] :
       {Reason("beyond", "beyond the tolerance"), Reason("within", "no smaller than fp32"),
        Reason("left out", "left out"), Reason("refused", "refused")}) {
    std::vector<std::string> names;
    for (const SchemeResult& scheme : report.schemes) {
      if (!is_8_bit_scheme(scheme) || decision_of(scheme) != decision) continue;
      names.push_back(one_line(scheme.name));
    }
    if (!names.empty()) reasons.push_back(std::string(reason) + ": " + join(names));
  }
  return reasons.empty() ? "no scheme was measured" : join(reasons, "; ");
}

}  // namespace

std::optional<MetricChange> metric_change(const QuantizeReport& report,
                                          const SchemeResult& scheme) {
  const SchemeResult* const fp32 = measured_scheme(report, "fp32");
  if (!scheme.not_measured.empty() || scheme.name == "fp32") return std::nullopt;
  double unit = 100;
  if (report.tolerance_unit == "per cent") {
    if (fp32 == nullptr) return std::nullopt;
    unit /= std::abs(fp32->metric);
  }
  MetricChange change;
  if (scheme.difference) {
    change.mean = unit * scheme.difference->mean;
    const double lower = unit * scheme.difference->lower, upper = unit * scheme.difference->upper;
    if (std::isfinite(lower) && std::isfinite(upper)) change.interval = std::pair(lower, upper);
  } else if (fp32 != nullptr) {
    change.mean = unit * (scheme.metric - fp32->metric);
  } else {
    return std::nullopt;
  }
  return std::isfinite(change.mean) ? std::optional(change) : std::nullopt;
}

std::vector<std::string> report_lines(const QuantizeReport& report) {
  std::vector<std::string> lines = {
      fmt::format("{} on {}: {} samples evaluated, {} for calibration", outside_text(report.model),
                  outside_text(report.data), count_text(report.evaluated_samples),
                  count_text(report.calibration_samples)),
      fmt::format("{}, the {} the better; tolerance: {} {}", outside_text(report.metric),
                  report.goal == "min" ? "lower" : "higher", digits_text(report.tolerance, 6),
                  outside_text(report.tolerance_unit)),
      fmt::format("{}; 8-bit products: {}", outside_text(report.processor),
                  outside_text(report.kernels))};
  lines.push_back(report.written.empty()
                      ? "nothing is written; " + reasons_text(report)
                      : "written: " + one_line(report.written) + ", " + outside_text(report.file));
  for (auto& line : lines) line = wrapped_text(line, kReportColumns);
  return lines;
}

Table scheme_table(const QuantizeReport& report) {
  constexpr size_t kLongestMetric = 12;
  Table table{"Schemes",
              {"scheme", middle_left_out(outside_text(report.metric), kLongestMetric), "change",
               "95 % interval", "bytes", "of fp32", "peak", "kept", ""},
              {},
              1,
              "",
              true};
  const SchemeResult* const fp32 = measured_scheme(report, "fp32");
  for (const SchemeResult& scheme : report.schemes) {
    std::vector<std::string> row(table.head.size(), kUnknown);
    row.front() = one_line(scheme.name);
    row.back() = decision_of(scheme);
    if (scheme.not_measured.empty()) {
      const auto change = metric_change(report, scheme);
      row[1] = digits_text(scheme.metric, 5);
      if (change) row[2] = change_text(change->mean);
      if (change && change->interval) {
        row[3] =
            change_text(change->interval->first) + " … " + change_text(change->interval->second);
      }
      row[4] = known_bytes(scheme.tensor_bytes);
      if (fp32 != nullptr && fp32->tensor_bytes > 0 && scheme.tensor_bytes > 0) {
        row[5] = fixed_text(
            static_cast<double>(scheme.tensor_bytes) / static_cast<double>(fp32->tensor_bytes), 3);
      }
      row[6] = known_bytes(scheme.peak_bytes);
      if (is_8_bit_scheme(scheme)) row[7] = to_text(scheme.layers_kept);
    }
    table.rows.push_back(std::move(row));
  }
  const auto has_any = [&](const auto& has) {
    return std::any_of(report.schemes.begin(), report.schemes.end(), has);
  };
  const bool is_paired = has_any([](const auto& scheme) { return scheme.difference.has_value(); });
  const bool has_peaks = has_any([](const auto& scheme) { return scheme.peak_bytes > 0; });
  add_note(table, fmt::format("change: of the metric to fp32's, {}{}; {}kept: weights put back to "
                              "fp32 for the tolerance.",
                              is_paired ? "paired by sample, " : "",
                              report.tolerance_unit == "per cent" ? "in per cent of fp32's"
                                                                  : "in points (0.01)",
                              has_peaks ? "peak: while 8 samples are predicted; " : ""));
  for (const SchemeResult& scheme : report.schemes) {
    if (scheme.not_measured.empty()) continue;
    const std::string name = one_line(scheme.name), why = one_line(scheme.not_measured);
    add_note(table, is_refused(scheme) ? name + " is " + why : name + " is left out: " + why);
  }
  return table;
}

Table time_table(const QuantizeReport& report) {
  Table table{"Time of a prediction",
              {"scheme", "batch", "time", "lowest", "highest", "of fp32's", "lowest", "highest",
               "of bf16's"},
              {},
              1,
              ""};
  const SchemeResult* const bf16 = measured_scheme(report, "bf16");
  std::vector<std::string> slower;  // than bf16
  const auto row = [&](const SchemeResult& scheme, int batch, const std::optional<Spread>& seconds,
                       const std::optional<Spread>& ratio, const std::optional<Spread>& of_bf16) {
    if (!seconds) return;
    std::vector<std::string> cells = {one_line(scheme.name), to_text(batch),
                                      known_time(seconds->median), known_time(seconds->lowest),
                                      known_time(seconds->highest)};
    cells.resize(table.head.size(), kUnknown);
    if (ratio) {
      cells[5] = known_ratio(ratio->median);
      cells[6] = known_ratio(ratio->lowest);
      cells[7] = known_ratio(ratio->highest);
    }
    if (of_bf16) {
      const double times = seconds->median / of_bf16->median;
      cells[8] = known_ratio(times);
      if (is_8_bit_scheme(scheme) && std::isfinite(times) && times > 1) {
        slower.push_back(fmt::format("{} at batch {}", one_line(scheme.name), batch));
      }
    }
    table.rows.push_back(std::move(cells));
  };
  for (const SchemeResult& scheme : report.schemes) {
    if (!scheme.not_measured.empty()) continue;
    row(scheme, 1, scheme.seconds_1, scheme.ratio_1, bf16 ? bf16->seconds_1 : std::nullopt);
    row(scheme, 8, scheme.seconds_8, scheme.ratio_8, bf16 ? bf16->seconds_8 : std::nullopt);
  }
  if (table.rows.empty()) {
    table.note = "none was measured";
    return table;
  }
  const bool has_bf16 = bf16 != nullptr && (bf16->seconds_1 || bf16->seconds_8);
  add_note(table, std::string("Medians; of fp32's: of pairs that took turns") +
                      (has_bf16 ? "; of bf16's: the quotient of the medians." : "."));
  if (!slower.empty()) add_note(table, "bf16 is faster than " + join(slower) + ".");
  return table;
}

Table remark_table(const QuantizeReport& report) {
  Table table{"Remarks", {}, {}, 1, ""};
  for (const auto& remark : report.remarks) add_note(table, one_line(remark));
  return table;
}

}  // namespace tanren
