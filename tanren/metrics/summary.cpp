#include "tanren/metrics/summary.h"

#include "tanren/metrics/json_line.h"

namespace tanren {

namespace {

void append(std::string& out, std::string_view key, std::string_view json) {
  out += out.empty() ? "{\n  " : ",\n  ";
  append_json(out, key);
  out += ": ";
  out += json;
}

void append(std::string& out, std::string_view key, double value) {
  std::string json;
  append_json(json, value);
  append(out, key, std::string_view(json));
}

void append(std::string& out, std::string_view key, int64_t value) {
  append(out, key, std::string_view(std::to_string(value)));
}

void append_text(std::string& out, std::string_view key, std::string_view text) {
  std::string json;
  append_json(json, text);
  append(out, key, std::string_view(json));
}

}  // namespace

std::string to_json(const Summary& summary) {
  std::string out;
  append(out, "steps", summary.steps);
  append(out, "attempts", summary.attempts);
  append(out, "samples_per_second", summary.samples_per_second);
  if (summary.tokens_per_second > 0) {
    append(out, "tokens_per_second", summary.tokens_per_second);
  }
  append(out, "wall_seconds", summary.wall_seconds);
  append(out, "startup_seconds", summary.startup_seconds);
  append(out, "final_loss", summary.final_loss);
  for (const auto& [name, value] : summary.evaluate) append(out, "evaluate." + name, value);
  append(out, "peak_memory_bytes", summary.peak_memory_bytes);
  if (summary.peak_tensor_bytes) append(out, "peak_tensor_bytes", *summary.peak_tensor_bytes);
  append(out, "skipped_steps", summary.skipped_steps);
  append(out, "device_reads_per_step", summary.device_reads_per_step);
  if (summary.best_step) {
    append(out, "best.step", *summary.best_step);
    append(out, "best." + summary.best_metric, summary.best_value);
  }
  if (!summary.weights.empty()) append_text(out, "weights", summary.weights);
  if (!summary.reason.empty()) append_text(out, "reason", summary.reason);
  if (!summary.growth.empty()) append_text(out, "growth", summary.growth);
  append_text(out, "status", summary.status);
  return out + "\n}";
}

}  // namespace tanren
