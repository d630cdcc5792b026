#include "cli/sweep/find_rate.h"

#include "tanren/anatomy/rehearsal.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/text.h"
#include "tanren/run/run_folder.h"
#include "tanren/sweep/rate_report.h"
#include "tanren/train/build.h"
#include "cli/stop_signals.h"
#include "cli/sweep/rate_search.h"
#include "cli/sweep/silence.h"
#include "cli/sweep/sweep_place.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <string_view>
#include <utility>

namespace tanren::cli {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFindSet = "sweep.find=";
constexpr int kFindStoppedCode = 130;

// Only async-signal-safe calls here. Ending at once is safe, because each file is whole or absent.
void on_find_signal(int) {
  constexpr std::string_view kStopped =
      "[sweep] stopped by a signal; give the same command again\n";
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kStopped.data(), kStopped.size());
  ::_exit(kFindStoppedCode);
}

void hear_find_signals() {
  std::signal(SIGINT, on_find_signal);
  std::signal(SIGTERM, on_find_signal);
  if (!hang_up_is_ignored()) std::signal(SIGHUP, on_find_signal);
}

// What the updates begin with.
struct FindStart {
  RunConfig config;
  fs::path checkpoint;  // empty: the beginning of the run
};

FindStart find_start(const Arguments& arguments, const Registry& registry) {
  const fs::path file = arguments.file;
  std::error_code none;
  const bool is_folder = fs::is_directory(file, none);
  if (is_folder && fs::exists(file / kSweepSource, none)) {
    throw ConfigError(fmt::format(
        "[sweep] {} is the folder of a sweep, and a learning rate is of one run; name its config "
        "file, or one of its trials",
        file.string()));
  }
  if (is_folder) check_run_folder(file);
  FindStart start{.config = read_named(arguments, registry).config, .checkpoint = {}};
  if (is_folder) {
    const auto newest = checkpoint_to_resume(file);
    start.config =
        config_to_go_on(file, std::move(start.config), requested_by(arguments), newest).config;
    if (newest) start.checkpoint = *newest;
  }
  if (start.checkpoint.empty() && !start.config.run.fork_from.empty()) {
    throw ConfigError(fmt::format(
        "[sweep] run.fork_from is {}, where a finder cannot begin; name that run's folder in place "
        "of {}, or drop the key",
        start.config.run.fork_from, file.string()));
  }
  return start;
}

// The folder of the report, which is not created here. ConfigError if it would lie in a run's
// folder.
fs::path find_folder(const Arguments& arguments, const RunConfig& config) {
  const fs::path sweep =
      arguments.out.empty() ? fs::path("sweeps") / config.run.name : fs::path(arguments.out);
  fs::path folder = sweep / kFound;
  std::error_code none;
  fs::path at = fs::weakly_canonical(fs::absolute(folder), none);  // behind links, too
  if (none) at = fs::absolute(folder).lexically_normal();
  for (; at.has_relative_path(); at = at.parent_path()) {
    const bool is_begun = fs::exists(at / "plan.txt", none) || fs::exists(at / "lock", none);
    if (!is_begun || !fs::exists(at / "config.toml", none)) continue;
    throw ConfigError(fmt::format(
        "[sweep] {} would lie in the folder of a run, {}; name another folder with --out",
        folder.string(), at.string()));
  }
  return folder;
}

void check_one_objective(const Rehearsal& run) {
  size_t objectives = 0;
  for (const Phase& phase : run.state().phases) objectives += phase.objectives.size();
  if (objectives == 1) return;
  throw ConfigError(fmt::format(
      "[sweep] the task has {} objectives, each with a learning rate of its own, and sweep.find "
      "finds one; search for theirs with [[sweep.space]]",
      objectives));
}

// The config table that holds the learning rate. An objective's own rate takes precedence over the
// run's.
std::string table_of_rate(const RunConfig& config, const std::string& objective) {
  const std::string own = "objectives." + objective + ".optimizer";
  return config.asked.count(own + ".learning_rate") > 0 ? own : "optimizer";
}

void make_find_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  throw InputError("[sweep] cannot write to " + folder.string() + " (" + error.message() +
                   "); name another folder with --out");
}

}  // namespace

bool asks_to_find(const Arguments& arguments, const Registry& registry) {
  const Silence silence;
  std::error_code none;
  if (!fs::is_directory(arguments.file, none)) {
    return !read_named(arguments, registry).config.sweep.find.empty();
  }
  return std::any_of(arguments.sets.begin(), arguments.sets.end(), [](const std::string& set) {
    return set.starts_with(kFindSet) && set.size() > kFindSet.size();
  });
}

int find_rate(const Arguments& arguments, const Registry& registry) {
  hear_find_signals();
  FindStart start = find_start(arguments, registry);
  const fs::path folder = find_folder(arguments, start.config);
  Rehearsal run(start.config, registry, open_datasets(start.config.data, registry.datasets), {},
                start.checkpoint);
  check_one_objective(run);
  make_find_folder(folder);
  RateReport report;
  report.name = run.config().run.name;
  report.table = table_of_rate(start.config, run.plan().objectives.front().name);
  report.subject =
      fmt::format("{}, {}, {} samples an update", run.config().model.kind,
                  run.plan().objectives.front().optimizer.kind, run.plan().batch.global_batch);
  report.begun = run.state().step();
  if (!arguments.json && !arguments.quiet) {
    std::cout << "up to " << finder_rates().size() << " updates in memory\n" << std::flush;
  }
  RateSearch search = search_rates(run);
  report.suggestion = suggest_rates(search.rates, search.trend);
  report.rates = std::move(search.rates);
  report.losses = std::move(search.losses);
  report.trend = std::move(search.trend);
  report.end = std::move(search.end);
  const std::string json = rate_report_json(report);
  write_file(folder / "learning_rate.json", json);
  const fs::path page = folder / "learning_rate.html";
  write_file(page, rate_report_html(report));
  if (arguments.json) {
    std::cout << json;
  } else if (!arguments.quiet) {
    std::cout << rate_report_text(report) << "plot: " << page.string()
              << " (beside it: learning_rate.json)\n";
  }
  if (report.suggestion.valley || report.suggestion.steepest) return 0;
  throw RunError(fmt::format("[sweep] the losses of {} updates tell no learning rate{}; look at {}",
                             report.rates.size(), report.end.empty() ? "" : " (" + report.end + ")",
                             page.string()));
}

}  // namespace tanren::cli
