// Configs of trials: combines a config with the values of a trial, and finds the problems of these
// configs before any trial starts. Called by the verb sweep and by tanren plan.
#pragma once

#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"
#include "tanren/sweep/space.h"
#include "tanren/sweep/study.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// The space of [[sweep.space]]. A range has only whole numbers if its key takes whole numbers.
Space space_of(const RunConfig& config);
// The study's options from [sweep]. `steps`: the steps of a trial. The seed is run.seed.
StudyOptions study_options_of(const RunConfig& config, int64_t steps);

// The text of a config, which is parsed again with the values of each trial.
struct ConfigSource {
  std::string text;            // TOML
  std::filesystem::path file;  // where it stood, absolute: its paths are relative to that folder
  std::vector<std::string> sets = {};  // of --set, in order; their paths absolute
};
// Reads the file and makes the paths in `sets` absolute. ConfigError as read_config.
ConfigSource config_source(const std::filesystem::path& file, const std::vector<std::string>& sets,
                           const KnownKinds& known);
// The source with more of --set, in place of its own of the same keys. ConfigError as
// read_config.
ConfigSource with_sets(ConfigSource source, const std::vector<std::string>& sets,
                       const KnownKinds& known);
// The config that read_config would return for the file with its sets and `more`. ConfigError with
// all problems.
RunConfig config_of(const ConfigSource& source, const std::vector<std::string>& more,
                    const KnownKinds& known);

// The config of a trial: the source with the trial's values, without [sweep]. ConfigError with all
// problems.
RunConfig trial_config(const ConfigSource& source, const TrialValues& values,
                       const KnownKinds& known);

// Whether the trial is the file itself, which has these values already.
bool is_as_written(const ConfigSource& source, const TrialValues& values, const KnownKinds& known);

// The points whose configs are checked. They are all combinations of choices and ends of ranges if
// there are at most `most`. Otherwise each choice and end is combined with the others at their
// first, and with the others at their last.
std::vector<SpacePoint> corners_of(const Space& space, int64_t most = 256);

// Every problem that the config of some corner has, one line each: "[sweep] KEY=VALUE …: problem",
// with the values of the first corner that has it. Empty: all corners are valid.
std::vector<std::string> corner_problems(const ConfigSource& source, const Space& space,
                                         const KnownKinds& known);

}  // namespace tanren
