#include "tanren/monitor/log_tail.h"

#include "tanren/base/json_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>

namespace tanren {

namespace {

constexpr int64_t kAttempts = 100;
constexpr int64_t kFirstWindow = int64_t{64} << 10, kLastWindow = int64_t{8} << 20;

std::optional<double> number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

int64_t whole(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::string word(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// The whole lines among the file's last `window` bytes.
struct Window {
  std::string text;
  bool is_all = false;  // begins at the file's start
};

Window window_of(const std::filesystem::path& log, int64_t window) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(log, none)) return {"", true};  // reading a pipe may block
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : -1;
  if (size < 0) return {"", true};
  Window result{std::string(static_cast<size_t>(std::min(size, window)), '\0'), size <= window};
  file.seekg(size - static_cast<int64_t>(result.text.size()));
  file.read(result.text.data(), static_cast<std::streamsize>(result.text.size()));
  result.text.resize(static_cast<size_t>(std::max<int64_t>(0, file.gcount())));
  // The text after the last line feed is still being written; npos + 1 is 0.
  result.text.resize(result.text.rfind('\n') + 1);
  if (!result.is_all) result.text.erase(0, result.text.find('\n') + 1);
  return result;
}

// The newest attempts and evaluation of a window, newest first.
struct Lines {
  std::vector<nlohmann::json> attempts;
  nlohmann::json evaluation;
};

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty() && static_cast<int64_t>(lines.attempts.size()) < kAttempts) {
    text.remove_suffix(1);  // the line feed
    const size_t start = text.rfind('\n') + 1;
    const std::string_view line = text.substr(start);
    text = text.substr(0, start);
    nlohmann::json json = parse_json(line);
    if (!json.is_object()) continue;
    if (json.contains("attempt")) {
      lines.attempts.push_back(std::move(json));
    } else if (json.contains("evaluation") && lines.evaluation.is_null()) {
      lines.evaluation = std::move(json);
    }
  }
  return lines;
}

void add_speed(const std::vector<nlohmann::json>& attempts, LogTail& tail) {
  double samples = 0, tokens = 0, seconds = 0, wait_seconds = 0, steps = 0;
  for (const nlohmann::json& json : attempts) {
    const auto timing = json.find("timing");
    if (timing == json.end() || !timing->is_object()) continue;
    seconds += number(*timing, "seconds").value_or(0);
    wait_seconds += number(*timing, "wait_seconds").value_or(0);
    samples += number(json, "samples").value_or(0);
    tokens += number(json, "tokens").value_or(0);
    steps += word(json, "verdict") == "apply" ? 1 : 0;
  }
  if (seconds <= 0) return;
  tail.samples_per_second = samples / seconds;
  tail.tokens_per_second = tokens / seconds;
  tail.wait_share = std::clamp(wait_seconds / seconds, 0.0, 1.0);
  if (steps > 0) tail.seconds_per_step = seconds / steps;
}

LogTail tail_of(const Lines& lines) {
  const nlohmann::json& last = lines.attempts.front();
  LogTail tail;
  tail.attempt = whole(last, "attempt");
  tail.step = whole(last, "step");
  tail.epoch = whole(last, "epoch");
  tail.loss = number(last, "loss");
  tail.learning_rate = number(last, "learning_rate");
  tail.grad_norm = number(last, "grad_norm");
  tail.verdict = word(last, "verdict");
  tail.cause = word(last, "cause");
  if (const auto timing = last.find("timing"); timing != last.end() && timing->is_object()) {
    tail.memory_bytes = whole(*timing, "memory_bytes");
  }
  add_speed(lines.attempts, tail);
  if (lines.evaluation.is_object() && lines.evaluation["evaluation"].is_object()) {
    tail.evaluation_step = whole(lines.evaluation, "step");
    for (const auto& [name, value] : lines.evaluation["evaluation"].items()) {
      if (value.is_number()) tail.evaluation.emplace_back(name, value.get<double>());
    }
  }
  return tail;
}

// Passes the lines to `take`. Skips lines above kLastWindow bytes, because no attempt is that long
// and they would take too much memory.
template <typename Take>
void each_line(std::istream& file, const Take& take) {
  std::string line, chunk(static_cast<size_t>(kFirstWindow), '\0');
  bool is_whole = true;
  while (file) {
    file.read(chunk.data(), kFirstWindow);
    std::string_view rest = std::string_view(chunk).substr(0, static_cast<size_t>(file.gcount()));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view piece = rest.substr(0, end);
      is_whole = is_whole && line.size() + piece.size() <= static_cast<size_t>(kLastWindow);
      if (is_whole) line += piece;
      if (end == std::string_view::npos) break;
      if (is_whole) take(line);
      line.clear();
      is_whole = true;
      rest.remove_prefix(end + 1);
    }
  }
  if (is_whole && !line.empty()) take(line);
}

// Gives the evaluations of a log to `take`: step and values.
template <typename Take>
void each_evaluation(const std::filesystem::path& log, const Take& take) {
  std::ifstream file(log, std::ios::binary);
  each_line(file, [&](const std::string& line) {
    if (!line.starts_with("{\"evaluation\":")) return;
    const nlohmann::json json = parse_json(line);
    if (json.is_object() && json["evaluation"].is_object()) {
      take(whole(json, "step"), json["evaluation"]);
    }
  });
}

}  // namespace

std::optional<BestEvaluation> best_evaluation(const std::filesystem::path& log,
                                              const std::string& metric, bool lower_is_better) {
  std::optional<BestEvaluation> best;
  each_evaluation(log, [&](int64_t step, const nlohmann::json& values) {
    const auto value = number(values, metric.c_str());
    if (!value) return;
    const bool is_better = !best || (lower_is_better ? *value < best->value : *value > best->value);
    if (is_better) best = {step, *value};
  });
  return best;
}

std::vector<std::pair<int64_t, double>> evaluations_of(const std::filesystem::path& log,
                                                       const std::string& metric) {
  std::vector<std::pair<int64_t, double>> found;
  each_evaluation(log, [&](int64_t step, const nlohmann::json& values) {
    if (!values.contains(metric)) return;
    const auto value = number(values, metric.c_str());
    found.emplace_back(step, value.value_or(std::numeric_limits<double>::quiet_NaN()));
  });
  return found;
}

std::optional<LogTail> read_log_tail(const std::filesystem::path& log) {
  for (int64_t size = kFirstWindow;; size = std::min(size * 8, kLastWindow)) {
    const Window window = window_of(log, size);
    const Lines lines = lines_of(window.text);
    if (!lines.attempts.empty()) return tail_of(lines);
    if (window.is_all || size == kLastWindow) return std::nullopt;
  }
}

}  // namespace tanren
