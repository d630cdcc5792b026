#include "tanren/run/run.h"
#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/metrics/console_sink.h"
#include "tanren/plan/print.h"
#include "tanren/run/fork_command.h"
#include "tanren/run/fork_place.h"
#include "tanren/run/run_folder.h"
#include "tanren/sweep/sweep_length.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/train.h"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <ctime>
#include <iostream>
#include <set>
#include <string_view>

namespace tanren::cli {

namespace {

constexpr int kStoppedCode = 130;

// A run's progress, as far as signal handling depends on it.
enum class Stage {
  starting,  // no update was made, and files are complete or absent; with several ranks, this
             // stage ends when data and model are prepared
  waiting,   // for the other ranks
  running,   // checks stop_requested
  finished,  // only its weights are still to be written
};

// A handler can only reach static storage.
std::atomic<bool> stop_requested{false};
std::atomic<Stage> stage{Stage::starting};
Interrupts interrupts;

// Rank 0 alone prints what all ranks do.
std::atomic<bool> tells_of_signals{true};

// Writes to stderr and keeps errno, because the interrupted code may read it.
void tell(std::string_view text) {
  const int before = errno;
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, text.data(), text.size());
  errno = before;
}

// Ends the process while nothing can be saved and stop_requested is not checked. Only
// async-signal-safe calls here.
[[noreturn]] void end_at_once() {
  constexpr std::string_view kWaiting =
      "[run] stopped by a signal while it waited for the other ranks; nothing has begun\n";
  constexpr std::string_view kStarting =
      "[run] stopped by a signal before an update of this start; start it again the same way\n";
  if (tells_of_signals.load()) tell(stage.load() == Stage::waiting ? kWaiting : kStarting);
  ::_exit(kStoppedCode);
}

void on_signal(int signal) {
  const Stage now = stage.load();
  if (now == Stage::starting || now == Stage::waiting) end_at_once();
  if (!stop_requested.exchange(true) && tells_of_signals.load()) {
    constexpr std::string_view kRunning =
        "[run] a signal came: it saves and stops; Ctrl-C once more ends it unsaved\n";
    constexpr std::string_view kFinished =
        "[run] a signal came: the run is finished and saved, and ends when its weights are "
        "written\n";
    tell(now == Stage::finished ? kFinished : kRunning);
  }
  if (!interrupts.is_second(signal)) return;
  std::signal(SIGINT, SIG_DFL);
  ::raise(SIGINT);  // ends this process when the handler returns
}

void hear_signals() {
  stage.store(Stage::starting);
  stop_requested.store(false);
  tells_of_signals.store(rank_of_process() == 0);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  if (!hang_up_is_ignored()) std::signal(SIGHUP, on_signal);
  // Training does not end because the reader of its output is gone.
  std::signal(SIGPIPE, SIG_IGN);
}

// Processor seconds spent before main: loading libraries counts as start-up too.
double seconds_before_main() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string weights_text(const Exported& exported, const Summary& summary) {
  std::string text = exported.averaged ? "averaged" : "";
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  if (summary.best_step == exported.step) {
    add("best " + summary.best_metric + " " + shown(summary.best_value));
  }
  add(fmt::format("step {}", exported.step));
  return "weights: " + exported.file.string() + " (" + text + ")";
}

// The program, or the launch command, by which the same run can be started again.
std::string command(const Plan& plan, const std::string& program) {
  const ParallelPlan& parallel = plan.parallel;
  if (parallel.launcher != "tanren launch" || parallel.local_ranks < parallel.world_size) {
    return program;
  }
  return fmt::format("{} launch -n {}", program, parallel.world_size);
}

// The part of a refusal that suggests a fork instead; empty if the fork would be refused, too.
std::string way_to_fork(const Named& named, const Arguments& arguments) {
  const auto checkpoint = latest_checkpoint(named.began / "checkpoints");
  if (!checkpoint) return "";
  const RunConfig before = recorded_config(named.began);
  if (command_to_fork(named.began, step_of(*checkpoint), before, named.config).empty()) return "";
  return ", or fork it there: " + fork_command(named.began, named.folder, arguments.sets);
}

// ConfigError if the run would not be in a permitted folder. A run resumes only in its own folder:
// in another one it would be a new run, without the old state. A fork needs its own folder.
void check_place_of(const Named& named, const Arguments& arguments) {
  if (arguments.fork) {
    check_fork_folder(named.config, named.folder);
    check_place(named.folder);
    return;
  }
  if (!named.began.empty()) check_run_folder(named.began);
  std::error_code none;
  if (named.began.empty() || std::filesystem::weakly_canonical(named.began, none) ==
                                 std::filesystem::weakly_canonical(named.folder, none)) {
    return;
  }
  // A folder that holds only a config has nothing to lose.
  using std::filesystem::directory_iterator;
  const bool has_begun =
      std::filesystem::exists(named.began / "log.jsonl", none) ||
      directory_iterator(named.began / "checkpoints", none) != directory_iterator();
  if (!has_begun) return;
  const std::string run = named.began.string(), out = shell_word(named.folder.string());
  std::string sets;
  for (const std::string& set : arguments.sets) sets += " --set " + shell_word(set);
  throw ConfigError(
      fmt::format("[run] {} resumes in its own folder, and would begin from step 0 in {}; drop "
                  "--out{}, or begin "
                  "another run: tanren run {} --out {}{}, with its weights: --set {}",
                  run, named.folder.string(), way_to_fork(named, arguments),
                  shell_word((named.began / "config.toml").string()), out, sets,
                  shell_word("model.init_from=" + run)));
}

// The plan's lines on what a fork takes.
std::string fork_text(const Plan& plan) {
  std::string text;
  for (const PlanLine& line : plan.lines) {
    if (!line.key.starts_with("fork_")) continue;
    text += fmt::format("{} {} ({})\n", line.key, line.value, line.reason);
  }
  return text;
}

void print_end(const RunOutput& output, const Named& named, const std::string& again) {
  const std::string folder = named.folder.string();
  const auto& summary = output.summary;
  if (output.loop.ending == Ending::finished) {
    std::cout << "finished: " << summary.steps << " steps";
    for (const auto& [name, loss] : summary.final_losses) {
      std::cout << ", " << name << " " << shown(loss);
    }
    const bool has_one = summary.final_losses.empty() && std::isfinite(summary.final_loss);
    if (has_one) std::cout << ", loss " << shown(summary.final_loss);
    for (const auto& [name, value] : summary.evaluate) {
      std::cout << ", evaluate." << name << " " << shown(value);
    }
    std::cout << ", " << seconds_text(summary.wall_seconds) << "\n";
    if (!summary.reason.empty()) std::cout << "ended early: " << summary.reason << "\n";
    if (output.exported) std::cout << weights_text(*output.exported, summary) << "\n";
    if (!output.quantized.empty()) {
      std::cout << "8-bit model: " << output.quantized.string() << "\n";
    }
    std::cout << "run folder: " << folder << "\n"
              << "next: ";
    if (has_evaluation(named.config.data)) {
      std::cout << again << " eval " << folder << "  |  ";
    }
    std::cout << "more steps: " << again << " run " << folder << " --set run."
              << (named.config.run.steps ? "steps" : "epochs") << "=…  |  the log: " << folder
              << "/log.jsonl\n";
  } else {
    std::cout << "stopped at step " << summary.steps
              << (summary.reason.empty() ? "" : " (" + summary.reason + ")")
              << "; resume with: " << again << " run " << folder << "\n";
  }
}

}  // namespace

int train(const Arguments& arguments, const Registry& registry,
          const std::function<Named()>& named_of, const std::function<void()>& begun) {
  const double started_at = seconds_before_main();
  hear_signals();
  const Named named = named_of();
  RunInput input{.config = named.config,
                 .folder = named.folder,
                 .requested = requested_by(arguments),
                 .sinks = {},
                 .stop = &stop_requested};
  input.started_at = started_at;
  input.rendezvous = [](bool waits) { stage.store(waits ? Stage::waiting : Stage::starting); };
  input.prepared = [] { stage.store(Stage::running); };
  const bool began_before = std::filesystem::exists(named.folder / "log.jsonl");
  const bool talk = !arguments.quiet && !arguments.json;
  std::unique_ptr<Sink> console;
  std::string again;  // the command
  const auto begins = [&begun] {
    stage.store(Stage::running);
    if (begun) begun();
  };
  input.started = [begins](const Plan&, const auto&, const auto&) { begins(); };
  input.finished = [] { stage.store(Stage::finished); };
  if (talk) {
    // The sink is made when the plan is known: it needs the total number of steps.
    struct Late final : Sink {
      std::unique_ptr<Sink> sink;
      void step(const StepReport& report) override { sink->step(report); }
      void evaluation(const EvaluationReport& report) override { sink->evaluation(report); }
      void flush() override { sink->flush(); }
    };
    auto late = std::make_unique<Late>();
    input.started = [late = late.get(), &named, began_before, &again, &arguments, begins](
                        const Plan& plan, const auto& resumed_from, const auto& ranks) {
      begins();
      again = command(plan, arguments.program);
      for (const std::string& line : ranks) std::cout << line << "\n";
      if (resumed_from) {
        std::cout << "resuming from " << resumed_from->string() << "\n";
      } else {
        if (began_before) {
          std::cout << "no complete checkpoint in " << named.folder.string()
                    << "; beginning again\n";
        }
        std::cout << fork_text(plan);
      }
      late->sink = make_console_sink(std::cout, {.total_steps = plan.length.total_steps,
                                                 .console_every = plan.metrics.console_every,
                                                 .terminal = stdout_is_terminal(),
                                                 .width = terminal_size().ws_col,
                                                 .spike_window = plan.guard.spike_window,
                                                 .proc = "/proc"});
    };
    console = std::move(late);
    input.sinks.push_back(console.get());
  }
  if (!arguments.quiet) {
    auto& to = arguments.json ? std::cerr : std::cout;  // a program reads the one object on stdout
    input.debug = [&to](const std::string& first_step) { to << first_step << std::flush; };
  }
  const RunOutput output = tanren::run(input, registry);
  console.reset();  // its last output comes before the end
  if (arguments.json && output.is_first) std::cout << to_json(output.summary) << "\n";
  if (talk && output.is_first) print_end(output, named, again);
  if (!output.summary.unwritten.empty()) throw RunError(output.summary.unwritten);
  return output.loop.ending == Ending::interrupted ? kStoppedCode : 0;
}

int run(const Arguments& arguments, const Registry& registry) {
  return train(arguments, registry, [&] {
    Named named = read_named(arguments, registry);
    check_place_of(named, arguments);
    return named;
  });
}

int plan(const Arguments& arguments, const Registry& registry) {
  const Named named = read_named(arguments, registry);
  check_place_of(named, arguments);
  PlannedMemory planned =
      plan_memory_of(named.config, registry, named.began, requested_by(arguments));
  if (!named.config.sweep.space.empty()) {
    const SweepLine line = sweep_line(named.config, planned.plan.length.total_steps);
    planned.plan.lines.push_back({"sweep", line.value, Source::asked, line.reason});
  }
  if (arguments.json) {
    auto json = parse_ordered_json(plan_json(planned.plan));
    json["memory"] = parse_ordered_json(to_json(planned.memory));
    std::cout << json_text(json, 2) << "\n";
  } else if (!arguments.quiet) {
    std::cout << plan_text(planned.plan) << "\n" << to_text(planned.memory);
  }
  return 0;
}

}  // namespace tanren::cli
