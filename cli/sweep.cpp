#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/sweep_length.h"
#include "cli/launch/child_processes.h"
#include "cli/sweep/find_rate.h"
#include "cli/sweep/planned_steps.h"
#include "cli/sweep/sweep_place.h"
#include "cli/sweep/sweep_runner.h"

#include <algorithm>
#include <iostream>

namespace tanren::cli {

namespace {

namespace fs = std::filesystem;

constexpr int kSweepStoppedCode = 130;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return;
  throw InputError("[sweep] cannot write to " + folder.string() + " (" + error.message() +
                   "); name another folder with --out");
}

int64_t num_ended(const Study& study) {
  const auto& all = study.records();
  return std::count_if(all.begin(), all.end(),
                       [](const TrialRecord& record) { return record.state == TrialState::ended; });
}

void say_what_begins(const SweepPlace& place, const Study& study, SweepReport& report) {
  const auto places = shares_of(place.config, 1).size();
  const std::string at_a_time = places > 1 ? fmt::format(", {} at a time", places) : "";
  const auto begun = std::ssize(study.records());
  const std::string before =
      begun > 0 ? fmt::format("; {} have begun, {} have ended", begun, num_ended(study)) : "";
  report.say(fmt::format("{}: {} trials by {}{}{}", place.folder.string(), study.options().trials,
                         study.options().metric, at_a_time, before));
}

int say_end(const SweepPlace& place, const Study& study, const Arguments& arguments) {
  const bool is_external = study.options().scheduler == "external";
  if (arguments.json) {
    std::cout << leaderboard_json(study);
  } else if (!arguments.quiet) {
    std::cout << leaderboard_text(study);
  }
  const TrialRecord* best = study.best();
  if (best == nullptr) {
    if (is_external && !study.is_done()) return 0;  // another program continues the study
    throw RunError("[sweep] no trial came to a value; " +
                   (place.folder / "leaderboard.txt").string() + " says why each ended");
  }
  if (arguments.json || arguments.quiet) return 0;
  const std::string link = (place.folder / "best").string();
  std::cout << fmt::format(
      "best: trial {:04}, {} {}\nnext: {} eval {}  |  the trials: {} runs {}  |  the page: {}\n",
      best->id, study.options().metric, shown(*best->value), arguments.program, link,
      arguments.program, place.trials().string(), (place.folder / "sweep.html").string());
  return 0;
}

}  // namespace

int sweep(const Arguments& arguments, const Registry& registry) {
  if (asks_to_find(arguments, registry)) return find_rate(arguments, registry);
  const SweepPlace place = read_sweep(arguments, registry);
  if (!has_one_thread()) {
    throw RunError(
        "[sweep] this program has started threads, and trials are forks of it; start them after "
        "tanren::cli::main has begun a run, not before");
  }
  int64_t steps = steps_of(place.config);
  if (needs_planned_steps(place.config)) {
    const auto planned = planned_steps_of(place, registry);
    if (!planned) return kSweepStoppedCode;
    steps = *planned;
  }
  StudyOptions options = study_options_of(place.config, steps);
  const Study refuses(space_of(place.config), options);  // checks the options before any write
  options.journal = place.journal();
  make_folder(place.folder);
  Study study(space_of(place.config), options);
  if (place.config.sweep.confirm > 0 && is_population(study)) {
    throw ConfigError(
        "[sweep] sweep.confirm repeats whole runs of one set of values, and the best of a "
        "population changed its values on the way; drop it");
  }
  check_trials(place, std::ssize(study.records()));
  write_source(place);
  SweepRunner runner(place, study, arguments, registry);
  say_what_begins(place, study, runner.report());
  switch (runner.run()) {
    case SweepRunner::Ending::done: return say_end(place, study, arguments);
    case SweepRunner::Ending::no_disk:
      throw RunError(runner.reason() +
                     "; no trial was started after that, and the same command "
                     "goes on once there is room");
    case SweepRunner::Ending::stopped: break;
  }
  runner.report().say(fmt::format("stopped: {} of {} trials have ended; go on with: {} sweep {}",
                                  num_ended(study), study.options().trials, arguments.program,
                                  place.folder.string()));
  return kSweepStoppedCode;
}

}  // namespace tanren::cli
