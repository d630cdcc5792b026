#include "tanren/metrics/summary.h"

#include "tanren/base/text.h"
#include "tanren/metrics/json_line.h"

namespace tanren {

namespace {

void append_line(std::string& out, std::string_view key, std::string_view json) {
  out += out.empty() ? "{\n  " : ",\n  ";
  append_json(out, key);
  out += ": ";
  out += json;
}

void append_line(std::string& out, std::string_view key, double value) {
  std::string json;
  append_json(json, value);
  append_line(out, key, std::string_view(json));
}

void append_line(std::string& out, std::string_view key, int64_t value) {
  append_line(out, key, std::string_view(to_text(value)));
}

void append_text_line(std::string& out, std::string_view key, std::string_view text) {
  std::string json;
  append_json(json, text);
  append_line(out, key, std::string_view(json));
}

}  // namespace

std::string to_json(const Summary& summary) {
  std::string out;
  const bool is_whole = summary.cause.empty();
  append_line(out, "steps", summary.steps);
  append_line(out, "attempts", summary.attempts);
  if (is_whole) append_line(out, "samples_per_second", summary.samples_per_second);
  if (is_whole && summary.tokens_per_second > 0) {
    append_line(out, "tokens_per_second", summary.tokens_per_second);
  }
  append_line(out, "wall_seconds", summary.wall_seconds);
  if (is_whole) append_line(out, "startup_seconds", summary.startup_seconds);
  append_line(out, "final_loss", summary.final_loss);
  for (const auto& [name, loss] : summary.final_losses) {
    append_line(out, "final_loss." + name, loss);
  }
  for (const auto& [name, value] : summary.evaluate) append_line(out, "evaluate." + name, value);
  append_line(out, "peak_memory_bytes", summary.peak_memory_bytes);
  if (summary.peak_tensor_bytes) append_line(out, "peak_tensor_bytes", *summary.peak_tensor_bytes);
  if (summary.predicted_peak_bytes) {
    append_line(out, "predicted_peak_bytes", *summary.predicted_peak_bytes);
  }
  append_line(out, "skipped_steps", summary.skipped_steps);
  if (is_whole) append_line(out, "device_reads_per_step", summary.device_reads_per_step);
  if (summary.best_step) {
    append_line(out, "best.step", *summary.best_step);
    append_line(out, "best." + summary.best_metric, summary.best_value);
  }
  if (!summary.weights.empty()) append_text_line(out, "weights", summary.weights);
  if (!summary.unwritten.empty()) append_text_line(out, "unwritten", summary.unwritten);
  if (!summary.reason.empty()) append_text_line(out, "reason", summary.reason);
  if (!summary.cause.empty()) append_text_line(out, "cause", summary.cause);
  if (summary.out_of_memory > 0) append_line(out, "out_of_memory", summary.out_of_memory);
  if (!summary.growth.empty()) append_text_line(out, "growth", summary.growth);
  append_text_line(out, "status", summary.status);
  return out + "\n}";
}

}  // namespace tanren
