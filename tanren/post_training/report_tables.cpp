#include "tanren/post_training/report_tables.h"

#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/page/units.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {

namespace {

constexpr int64_t kReportColumns = 100;
constexpr const char* kUnknown = "-";

std::string outside_text(const std::string& text) {
  return text.empty() ? kUnknown : one_line(text);
}

// With a minus as long as a plus.
std::string with_minus(const std::string& number) {
  return !number.empty() && number[0] == '-' ? "−" + number.substr(1) : number;
}

// At most `digits` significant digits.
std::string digits_text(double value, int digits) {
  return std::isfinite(value) ? with_minus(short_text(value, digits)) : kUnknown;
}

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

std::string known_bytes(int64_t bytes) { return bytes > 0 ? mebibytes_text(bytes) : kUnknown; }

std::string known_share(double share) {
  return std::isfinite(share) ? percent_text(share) : kUnknown;
}

const SchemeResult* measured_scheme(const QuantizeReport& report, std::string_view name) {
  for (const SchemeResult& scheme : report.schemes) {
    if (scheme.name == name && scheme.not_measured.empty()) return &scheme;
  }
  return nullptr;
}

bool is_8_bit_scheme(const SchemeResult& scheme) {
  return scheme.name != "fp32" && scheme.name != "bf16";
}

// Lines of at most `columns`, broken at blanks.
std::string wrapped_text(const std::string& text, int64_t columns) {
  std::string result, line;
  const auto add = [&](const std::string& word) {
    if (!line.empty() && display_width(line) + 1 + display_width(word) > columns) {
      result += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  };
  std::string word;
  for (const char c : text) {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      add(word);
      word.clear();
    }
  }
  if (!word.empty()) add(word);
  return result + line;
}

// `text` in at most `most` characters; the middle is left out.
std::string middle_left_out(const std::string& text, size_t most) {
  std::vector<std::string_view> characters;
  for (std::string_view rest = text; !rest.empty();) {
    characters.push_back(rest.substr(0, first_character(rest).size));
    rest.remove_prefix(characters.back().size());
  }
  if (characters.size() <= most) return text;
  const size_t tail = most / 2, head = most - 1 - tail;
  std::string result;
  for (size_t i = 0; i < head; ++i) result += characters[i];
  result += "…";
  for (size_t i = characters.size() - tail; i < characters.size(); ++i) result += characters[i];
  return result;
}

void add_note(Table& table, const std::string& line) {
  if (line.empty()) return;
  if (!table.note.empty()) table.note += "\n";
  table.note += wrapped_text(line, kReportColumns - 2);
}

std::string decision_of(const SchemeResult& scheme) {
  if (!scheme.not_measured.empty()) return "left out";
  if (scheme.is_written) return "written";
  if (scheme.name == "fp32") return "";
  return scheme.is_within_tolerance ? "within" : "beyond";
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(to_text(size));
  return sizes.empty() ? kUnknown : join(sizes, "×");
}

std::string range_text(const LayerResult& layer) {
  if (!layer.input_range) return kUnknown;
  const auto [low, high] = *layer.input_range;
  if (!std::isfinite(low) || !std::isfinite(high)) return kUnknown;
  return digits_text(low, 3) + " … " + digits_text(high, 3);
}

// The error of a layer if it is known, else NaN.
double known_error(const LayerResult& layer) {
  const double error = layer.error.value_or(std::numeric_limits<double>::quiet_NaN());
  return std::isfinite(error) ? error : std::numeric_limits<double>::quiet_NaN();
}

std::string stored_as(const LayerResult& layer) { return layer.is_8_bit ? "int8" : "stays"; }

// "5 of 7 weights are in 8 bits, with 91.2 % of the model's bytes in fp32."
std::string eight_bit_line(const QuantizeReport& report) {
  size_t count = 0;
  double share = 0;
  for (const LayerResult& layer : report.layers) {
    if (!layer.is_8_bit) continue;
    ++count;
    share += layer.share;
  }
  return fmt::format("{} of {} weights are in 8 bits, with {} of the model's bytes in fp32.", count,
                     report.layers.size(), known_share(share));
}

// Lengths of bars on a scale of decades: the decade of the smallest error begins it, and the
// largest error has the full length. Errors that are 0 or not known have none.
std::vector<double> error_bars(const QuantizeReport& report) {
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const LayerResult& layer : report.layers) {
    const double error = known_error(layer);
    if (!(error > 0)) continue;
    least = std::min(least, error);
    most = std::max(most, error);
  }
  std::vector<double> bars(report.layers.size(), 0);
  if (most == 0) return {};
  const double from = std::ceil(std::log10(least)) - 1, length = std::log10(most) - from;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double error = known_error(report.layers[i]);
    if (error > 0) bars[i] = (std::log10(error) - from) / length;
  }
  return bars;
}

// A line for each reason why weights stay, with the first of their names.
std::vector<std::string> staying_lines(const QuantizeReport& report) {
  constexpr size_t kNames = 6;
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  for (const LayerResult& layer : report.layers) {
    if (layer.is_8_bit) continue;
    auto found = std::find_if(reasons.begin(), reasons.end(),
                              [&](const auto& reason) { return reason.first == layer.why; });
    if (found == reasons.end()) found = reasons.insert(found, {layer.why, {}});
    found->second.push_back(one_line(layer.name));
  }
  std::vector<std::string> lines;
  for (auto& [why, names] : reasons) {
    const size_t count = names.size();
    names.resize(std::min(count, kNames));
    std::string line = "stays (" + one_line(why) + "): " + join(names);
    if (count > kNames) line += fmt::format(" and {} more", count - kNames);
    lines.push_back(std::move(line));
  }
  return lines;
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
                      ? "nothing is written: no scheme is within the tolerance"
                      : "written: " + one_line(report.written) + ", " + outside_text(report.file));
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
        row[3] = change_text(change->interval->first) + " … " +
                 change_text(change->interval->second);
      }
      row[4] = known_bytes(scheme.tensor_bytes);
      if (fp32 != nullptr && fp32->tensor_bytes > 0 && scheme.tensor_bytes > 0) {
        row[5] = fixed_text(static_cast<double>(scheme.tensor_bytes) /
                                static_cast<double>(fp32->tensor_bytes),
                            3);
      }
      row[6] = known_bytes(scheme.peak_bytes);
      if (is_8_bit_scheme(scheme)) row[7] = to_text(scheme.layers_kept);
    }
    table.rows.push_back(std::move(row));
  }
  add_note(table, fmt::format("change: of the metric to fp32's, paired by sample, {}; peak: while "
                              "8 samples are predicted; kept: weights put back to fp32 for the "
                              "tolerance.",
                              report.tolerance_unit == "per cent" ? "in per cent of fp32's"
                                                                  : "in points (0.01)"));
  for (const SchemeResult& scheme : report.schemes) {
    if (scheme.not_measured.empty()) continue;
    add_note(table, one_line(scheme.name) + " is left out: " + one_line(scheme.not_measured));
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
    std::vector<std::string> cells = {one_line(scheme.name),         to_text(batch),
                                      known_time(seconds->median),   known_time(seconds->lowest),
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
  add_note(table,
           "Medians; of fp32's: of pairs that took turns; of bf16's: the quotient of the medians.");
  if (!slower.empty()) add_note(table, "bf16 is faster than " + join(slower) + ".");
  return table;
}

Table layer_table(const QuantizeReport& report) {
  Table table{
      "Layers", {"weight", "reader", "shape", "stored", "decision", "share", "input", "error"}, {},
      5,        ""};
  for (const LayerResult& layer : report.layers) {
    table.rows.push_back({one_line(layer.name),
                          outside_text(layer.reader),
                          shape_text(layer.shape), stored_as(layer), one_line(layer.why),
                          known_share(layer.share), range_text(layer),
                          digits_text(known_error(layer), 2)});
  }
  table.bars = error_bars(report);
  if (report.layers.empty()) {
    table.note = "none is in 8 bits";
    return table;
  }
  add_note(table, eight_bit_line(report));
  add_note(table,
           "error: of the outputs with this weight alone in 8 bits, relative and squared, its bar "
           "on a scale of decades; input: the range that the bytes of a static input cover; share: "
           "of the model's bytes in fp32.");
  return table;
}

Table worst_layer_table(const QuantizeReport& report, size_t most) {
  constexpr size_t kShortestName = 20;
  Table table{"Layers", {"weight", "shape", "input", "error", "share", "stored"}, {}, 1, "", true};
  std::vector<const LayerResult*> layers;
  for (const LayerResult& layer : report.layers) layers.push_back(&layer);
  const auto rank = [](const LayerResult* layer) {
    const double error = known_error(*layer);
    return std::isnan(error) ? -1 : error;
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const auto* a, const auto* b) { return rank(a) > rank(b); });
  const size_t shown = std::min(most, layers.size());
  for (size_t i = 0; i < shown; ++i) {
    const LayerResult& layer = *layers[i];
    table.rows.push_back({one_line(layer.name), shape_text(layer.shape), range_text(layer),
                          digits_text(known_error(layer), 2), known_share(layer.share),
                          stored_as(layer)});
  }
  if (layers.empty()) {
    table.note = "none is in 8 bits";
    return table;
  }
  int64_t others = 2;  // columns of all cells but the names
  for (size_t column = 1; column < table.head.size(); ++column) {
    int64_t width = display_width(table.head[column]);
    for (const auto& row : table.rows) width = std::max(width, display_width(row[column]));
    others += 2 + width;
  }
  const auto left = static_cast<size_t>(std::max<int64_t>(kReportColumns - others, 0));
  for (auto& row : table.rows) row[0] = middle_left_out(row[0], std::max(left, kShortestName));
  add_note(table, eight_bit_line(report));
  for (const auto& line : staying_lines(report)) add_note(table, line);
  if (layers.size() > shown) {
    add_note(table, fmt::format("The {} with the largest errors of {}; quantize.json has all.",
                                shown, layers.size()));
  }
  return table;
}

}  // namespace tanren
