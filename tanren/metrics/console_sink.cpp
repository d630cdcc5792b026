#include "tanren/metrics/console_sink.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/metrics/contention.h"
#include "tanren/metrics/speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

namespace {

using Clock = std::chrono::steady_clock;

std::string number(double value, int digits = 4) { return short_text(value, digits); }

// A rate: whole above 100, three digits below.
std::string rate_text(double rate) {
  return rate >= 100 ? to_text(std::llround(rate)) : number(rate, 3);
}

// What an objective last reported.
struct Latest {
  std::string objective;
  double loss = 0, learning_rate = 0;
};

// Recent speed: older reports of this session count less.
class Rate {
 public:
  void add(const StepReport& report, bool applied) {
    constexpr double kFade = 0.99;
    speed_.fade(kFade);
    speed_.add(report);
    steps_ = steps_ * kFade + (applied ? 1 : 0);
    seconds_ = seconds_ * kFade + report.seconds;
  }
  // "1200 samples/s", and tokens where there are any.
  std::string text() const {
    std::string text = rate_text(speed_.samples_per_second()) + " samples/s";
    if (speed_.has_tokens()) text += "  " + rate_text(speed_.tokens_per_second()) + " tokens/s";
    return text;
  }
  // Infinite until a step was applied.
  double seconds_per_step() const { return steps_ > 0 ? seconds_ / steps_ : INFINITY; }

 private:
  Speed speed_;
  double steps_ = 0;
  double seconds_ = 0;
};

class ConsoleSink final : public Sink {
 public:
  ConsoleSink(std::ostream& out, const ConsoleOptions& options)
      : out_(out), options_(options), contention_(options.proc) {}

  ~ConsoleSink() override {
    if (hidden_spikes_ > 0) line(hidden_text() + "; log.jsonl has each");
    if (drawn_) out_ << '\n';
    out_.flush();
  }
  ConsoleSink(const ConsoleSink&) = delete;
  ConsoleSink& operator=(const ConsoleSink&) = delete;

  void step(const StepReport& report) override {
    if (const auto text = contention_.look(Clock::now())) line(*text);
    if (report.objectives.empty()) return;
    const bool applied = std::all_of(
        report.objectives.begin(), report.objectives.end(),
        [](const auto& objective) { return objective.verdict.action == Action::apply; });
    rate_.add(report, report.objectives.front().verdict.action == Action::apply);
    for (const auto& objective : report.objectives) note(objective);
    if (!applied) {
      line(position(report) + "  " + troubles(report));
      return;
    }
    const std::string standing_out = spikes(report);
    if (!standing_out.empty()) tell_spike(report, standing_out);
    const bool last = report.step == options_.total_steps;
    if (!last && report.step % std::max<int64_t>(1, options_.console_every) != 0) return;
    if (!options_.terminal) {
      line(position(report) + "  " + facts(report));
    } else if (last || is_time()) {
      draw(report);
    }
  }

  void evaluation(const EvaluationReport& report) override {
    std::string text = fmt::format("evaluation at step {}{}", report.step,
                                   report.averaged ? " (averaged weights):" : ":");
    for (const auto& [name, value] : report.values) text += "  " + name + " " + number(value);
    line(fmt::format("{}  ({} samples, {})", text, report.samples, seconds_text(report.seconds)));
    if (!report.ends_run.empty()) line(report.ends_run);
    out_.flush();
  }

  void flush() override { out_.flush(); }

 private:
  void note(const ObjectiveReport& objective) {
    const auto known = std::find_if(latest_.begin(), latest_.end(), [&](const Latest& one) {
      return one.objective == objective.name;
    });
    Latest& latest = known == latest_.end() ? latest_.emplace_back() : *known;
    latest = {objective.name, objective.loss, objective.learning_rate};
  }

  // One rate if all objectives have the same one. Otherwise each rate with its objective.
  std::string rates() const {
    const double first = latest_.front().learning_rate;
    if (std::all_of(latest_.begin(), latest_.end(),
                    [&](const Latest& one) { return one.learning_rate == first; })) {
      return number(first, 3);
    }
    std::vector<std::string> texts;
    for (const Latest& one : latest_) {
      texts.push_back(fmt::format("{} ({})", number(one.learning_rate, 3), one.objective));
    }
    return join(texts);
  }

  std::string position(const StepReport& report) const {
    std::string text = fmt::format("step {}", report.step);
    if (options_.total_steps > 0) text += fmt::format("/{}", options_.total_steps);
    return text;
  }

  std::string facts(const StepReport& report) const {
    std::string text;
    if (!report.several) text = "loss " + number(report.objectives.front().loss) + "  ";
    for (const Latest& one : latest_) {
      if (report.several) text += one.objective + " " + number(one.loss) + "  ";
    }
    text += "lr " + rates();
    text += "  " + rate_.text();
    const auto left = static_cast<double>(options_.total_steps - report.step);
    const double eta = left * rate_.seconds_per_step();
    if (left > 0 && std::isfinite(eta)) text += "  eta " + seconds_text(eta);
    if (report.memory_bytes > 0) {
      text += "  " + bytes_text(static_cast<double>(report.memory_bytes));
    }
    return text;
  }

  // Prints one line a window at most, with the number of spikes that had no line.
  void tell_spike(const StepReport& report, const std::string& text) {
    if (told_spike_ && report.step - *told_spike_ < options_.spike_window) {
      ++hidden_spikes_;
      return;
    }
    line(position(report) + "  " + text + (hidden_spikes_ > 0 ? "  (" + hidden_text() + ")" : ""));
    told_spike_ = report.step;
    hidden_spikes_ = 0;
  }

  std::string hidden_text() const {
    return fmt::format("{} more since step {}", hidden_spikes_, *told_spike_);
  }

  static std::string spikes(const StepReport& report) {
    std::string text;
    for (const auto& objective : report.objectives) {
      if (!objective.spike) continue;
      const Spike& spike = *objective.spike;
      if (!text.empty()) text += "  ";
      if (report.several) text += objective.name + " ";
      text += fmt::format("spike: {} {} is {} deviations above its running mean {}", spike.what,
                          number(spike.value), number(spike.z, 3), number(spike.mean));
    }
    return text;
  }

  static std::string troubles(const StepReport& report) {
    std::string text;
    for (const auto& objective : report.objectives) {
      if (objective.verdict.action == Action::apply) continue;
      if (!text.empty()) text += "  ";
      if (report.several) text += objective.name + " ";
      text += objective.verdict.action == Action::skip ? "skipped: " : "halted: ";
      text += name(objective.verdict.cause);
      if (objective.verdict.cause == Cause::nothing_counted) continue;  // it has no loss
      text += "  loss " + number(objective.loss);
      if (objective.loss_scale != 1) text += "  loss_scale " + number(objective.loss_scale, 8);
    }
    text += fmt::format("  (attempt {})", report.attempt);
    if (!report.culprit.empty()) text += "  " + report.culprit;
    return text;
  }

  // Prints a whole line; on a terminal it takes the bar's place and the bar moves down.
  void line(const std::string& text) {
    if (drawn_) out_ << "\r\x1b[K";
    drawn_ = false;
    out_ << text << '\n';
    if (is_time()) out_.flush();
  }

  // The bar uses the space that the facts leave in the line, so that the line never wraps.
  void draw(const StepReport& report) {
    std::string text = position(report) + "  " + facts(report);
    const int64_t width = std::max<int64_t>(10, options_.width - 1);
    const int64_t used = display_width(text);
    if (options_.total_steps > 0 && used + 12 <= width) {
      const auto cells = static_cast<size_t>(std::min<int64_t>(30, width - used - 4));
      const double share = std::clamp(
          static_cast<double>(report.step) / static_cast<double>(options_.total_steps), 0.0, 1.0);
      const auto full = static_cast<size_t>(share * static_cast<double>(cells));
      text = "[" + std::string(full, '#') + std::string(cells - full, '.') + "]  " + text;
    }
    out_ << '\r' << cut_text(text, width) << "\x1b[K";
    out_.flush();
    drawn_ = true;
  }

  bool is_time() {
    const auto now = Clock::now();
    if (shown_ && std::chrono::duration<double>(now - at_).count() < options_.refresh_seconds) {
      return false;
    }
    shown_ = true;
    at_ = now;
    return true;
  }

  std::ostream& out_;
  ConsoleOptions options_;
  ContentionWatch contention_;
  Rate rate_;
  std::vector<Latest> latest_;         // per objective, because not all take part in each step
  std::optional<int64_t> told_spike_;  // step of the last spike with a line
  int64_t hidden_spikes_ = 0;          // spikes without a line since then
  bool drawn_ = false;                 // the cursor is at the end of a bar
  bool shown_ = false;
  Clock::time_point at_;
};

}  // namespace

std::unique_ptr<Sink> make_console_sink(std::ostream& out, const ConsoleOptions& options) {
  return std::make_unique<ConsoleSink>(out, options);
}

}  // namespace tanren
