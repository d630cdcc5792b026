#include "tanren/metrics/tensorboard_sink.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/metrics/evaluation_file.h"
#include "tanren/metrics/event_cut.h"
#include "tanren/metrics/event_record.h"
#include "tanren/metrics/queued_sink.h"
#include "tanren/metrics/speed.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// Markdown that shows `text` verbatim: four blanks make a line code.
std::string as_code(const std::string& text) {
  std::string code = "    ";
  for (const char c : text) {
    code += c;
    if (c == '\n') code += "    ";
  }
  return code;
}

void add_objective(NamedValues& points, const ObjectiveReport& objective,
                   const std::string& prefix) {
  points.emplace_back(prefix + "loss", objective.loss);
  if (objective.terms.size() > 1) {
    for (const auto& [name, value] : objective.terms) {
      points.emplace_back(prefix + "terms/" + name, value);
    }
  }
  points.emplace_back(prefix + "grad_norm", objective.grad_norm);
  points.emplace_back(prefix + "learning_rate", objective.learning_rate);
  if (objective.loss_scale != 1) points.emplace_back(prefix + "loss_scale", objective.loss_scale);
  if (objective.flush_share) points.emplace_back(prefix + "flush_share", *objective.flush_share);
  if (objective.overflow_share) {
    points.emplace_back(prefix + "overflow_share", *objective.overflow_share);
  }
}

class EventFormat final : public ReportFormat {
 public:
  explicit EventFormat(int64_t every) : every_(std::max<int64_t>(1, every)) {}

  void append(const StepReport& report, double wall_time, std::string& out) override {
    speed_.add(report);
    const bool applied = std::any_of(
        report.objectives.begin(), report.objectives.end(),
        [](const auto& objective) { return objective.verdict.action == Action::apply; });
    for (const auto& objective : report.objectives) {
      if (objective.verdict.action == Action::apply) latest_[objective.name] = objective;
    }
    if (!applied || report.step == told_step_ || report.step % every_ != 0) return;
    told_step_ = report.step;
    NamedValues points;
    for (const auto& [name, objective] : latest_) {
      add_objective(points, objective, report.several ? "train/" + name + "/" : "train/");
    }
    latest_.clear();
    if (report.attempt > report.step) {
      points.emplace_back("train/skipped_steps", static_cast<double>(report.attempt - report.step));
    }
    points.emplace_back("speed/samples_per_second", speed_.samples_per_second());
    if (speed_.has_tokens()) {
      points.emplace_back("speed/tokens_per_second", speed_.tokens_per_second());
    }
    points.emplace_back("speed/seconds", speed_.seconds_per_attempt());
    points.emplace_back("speed/wait_seconds", speed_.wait_seconds_per_attempt());
    points.emplace_back("memory/memory_bytes", static_cast<double>(report.memory_bytes));
    append_scalars(out, wall_time, report.step, points);
    speed_ = {};
  }

  void append(const EvaluationReport& report, double wall_time, std::string& out) override {
    NamedValues points;
    for (const auto& [name, value] : report.values) points.emplace_back("evaluate/" + name, value);
    append_scalars(out, wall_time, report.step, points);
    if (!report.confusion_matrix.empty()) {
      append_text(out, wall_time, report.step, "evaluate/confusion_matrix",
                  confusion_markdown(report));
    }
  }

  bool takes_images() const override { return true; }

  void append(const ImageReport& report, double wall_time, std::string& out) override {
    if (report.pictures.empty()) return;
    try {
      append_images(out, wall_time, report);
    } catch (const std::exception& error) {  // the writer's thread has no caller
      log(fmt::format("[metrics] no pictures of step {} for TensorBoard: {}", report.step,
                      error.what()));
    }
  }

 private:
  int64_t every_;
  int64_t told_step_ = -1;
  // The last report of each objective since the last point, by name. An objective that takes turns
  // may be out of turn at every point.
  std::map<std::string, ObjectiveReport> latest_;
  Speed speed_;  // since the last point
};

class NoSink final : public Sink {
 public:
  void step(const StepReport&) override {}
};

// A file name that sorts after every existing file, also within one second and after the clock was
// set back: TensorBoard reads files in the order of their names and never goes back.
fs::path new_event_file(const fs::path& folder) {
  constexpr size_t kPrefix = sizeof("events.out.tfevents.") - 1;
  auto seconds = static_cast<long long>(unix_seconds());
  for (const auto& file : event_files(folder)) {
    seconds = std::max(seconds, std::atoll(file.filename().c_str() + kPrefix) + 1);
  }
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') host[0] = '_', host[1] = '\0';
  return folder / fmt::format("events.out.tfevents.{:010}.{}.{}.tanren", seconds, host, ::getpid());
}

}  // namespace

std::unique_ptr<Sink> make_tensorboard_sink(const fs::path& folder,
                                            const TensorboardOptions& options) {
  try {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw RunError("[metrics] cannot make " + folder.string() + ": " + error.message());
    cut_events(folder, options.step, options.repeats_evaluation);
    auto file = std::make_unique<AppendFile>(new_event_file(folder));
    append_file_version(file->buffer(), unix_seconds());
    append_session_start(file->buffer(), unix_seconds(), options.step + 1);
    for (const auto& [tag, text] : options.texts) {
      append_text(file->buffer(), unix_seconds(), options.step, tag, as_code(text));
    }
    file->end_item();
    return make_queued_sink(std::move(file), std::make_unique<EventFormat>(options.every),
                            {.is_record = false, .max_waiting = size_t{16} << 20});
  } catch (const std::exception& error) {
    log(std::string(error.what()) + "; the run goes on without TensorBoard");
    return std::make_unique<NoSink>();
  }
}

}  // namespace tanren
