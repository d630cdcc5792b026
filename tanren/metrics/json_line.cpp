#include "tanren/metrics/json_line.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <charconv>
#include <cmath>

namespace tanren {

void append_json(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : utf8_text(text)) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20) {
      out += "\\u00";
      out += kHex[code >> 4];
      out += kHex[code & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

void append_key(std::string& out, std::string_view key) {
  if (out.back() != '{') out += ',';
  append_json(out, key);
  out += ':';
}

void append_member(std::string& out, std::string_view key, double value) {
  append_key(out, key);
  append_json(out, value);
}

void append_member(std::string& out, std::string_view key, int64_t value) {
  append_key(out, key);
  out += to_text(value);
}

void append_member(std::string& out, std::string_view key, std::string_view text) {
  append_key(out, key);
  append_json(out, text);
}

namespace {

void append_values(std::string& out, std::string_view key, const NamedValues& values) {
  append_key(out, key);
  out += '{';
  for (const auto& [name, value] : values) append_member(out, name, value);
  out += '}';
}

void append_spike(std::string& out, std::string_view key, const Spike& spike) {
  append_key(out, key);
  out += '{';
  append_member(out, "what", spike.what);
  append_member(out, "value", spike.value);
  append_member(out, "mean", spike.mean);
  append_member(out, "z", spike.z);
  out += '}';
}

// The keys from "loss" on, which the top level and each entry of "objectives" have in common.
void append_objective(std::string& out, const ObjectiveReport& objective) {
  append_member(out, "loss", objective.loss);
  append_values(out, "terms", objective.terms);
  append_member(out, "grad_norm", objective.grad_norm);
  append_member(out, "learning_rate", objective.learning_rate);
  append_member(out, "loss_scale", objective.loss_scale);
  append_member(out, "verdict", name(objective.verdict.action));
  append_member(out, "cause", name(objective.verdict.cause));
  if (objective.spike) append_spike(out, "spike", *objective.spike);
  if (objective.flush_share) append_member(out, "flush_share", *objective.flush_share);
  if (objective.overflow_share) append_member(out, "overflow_share", *objective.overflow_share);
}

void append_rates(std::string& out, int64_t samples, int64_t tokens, double seconds) {
  if (!(seconds > 0)) return;
  append_member(out, "samples_per_second", static_cast<double>(samples) / seconds);
  if (tokens > 0) append_member(out, "tokens_per_second", static_cast<double>(tokens) / seconds);
}

// [[row of class 0], …]
void append_matrix(std::string& out, const EvaluationReport& report) {
  append_key(out, "confusion_matrix");
  const size_t size = report.classes.size();
  for (size_t i = 0; i < report.confusion_matrix.size(); ++i) {
    out += i == 0 ? "[[" : i % size == 0 ? "],[" : ",";
    out += to_text(report.confusion_matrix[i]);
  }
  out += "]]";
}

}  // namespace

std::string json_line(const StepReport& report) {
  std::string out = "{";
  out.reserve(512);
  append_member(out, "attempt", report.attempt);
  append_member(out, "step", report.step);
  append_member(out, "epoch", report.epoch);
  append_member(out, "samples", report.samples);
  if (report.tokens > 0) append_member(out, "tokens", report.tokens);
  append_member(out, "microsteps", report.microsteps);
  if (!report.objectives.empty()) append_objective(out, report.objectives.front());
  if (!report.culprit.empty()) append_member(out, "culprit", report.culprit);
  if (report.several) {
    append_key(out, "objectives");
    out += '[';
    for (const auto& objective : report.objectives) {
      if (out.back() != '[') out += ',';
      out += '{';
      append_member(out, "name", objective.name);
      append_member(out, "step", objective.step);
      append_objective(out, objective);
      out += '}';
    }
    out += ']';
  }
  append_key(out, "timing");
  out += '{';
  append_member(out, "seconds", report.seconds);
  append_member(out, "wait_seconds", report.wait_seconds);
  if (report.bubble) append_member(out, "bubble", *report.bubble);
  append_rates(out, report.samples, report.tokens, report.seconds);
  append_member(out, "memory_bytes", report.memory_bytes);
  out += "}}";
  return out;
}

std::string json_line(const EvaluationReport& report) {
  std::string out = "{";
  append_values(out, "evaluation", report.values);
  append_member(out, "step", report.step);
  append_member(out, "samples", report.samples);
  if (report.averaged) append_member(out, "weights", "averaged");
  if (!report.ends_run.empty()) append_member(out, "ends_run", report.ends_run);
  if (report.tokens > 0) append_member(out, "tokens", report.tokens);
  if (report.auroc_error) append_member(out, "auroc_error", *report.auroc_error);
  if (!report.confusion_matrix.empty()) append_matrix(out, report);
  append_key(out, "timing");
  out += '{';
  append_member(out, "seconds", report.seconds);
  append_rates(out, report.samples, report.tokens, report.seconds);
  out += "}}";
  return out;
}

}  // namespace tanren
