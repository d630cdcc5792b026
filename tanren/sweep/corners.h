// Configs of trials: what a config becomes with the values of a trial, and the problems of
// such configs, found before any trial starts. Called by the verb sweep and by tanren plan.
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

// The space of [[sweep.space]]. A range of a key that takes whole numbers has whole numbers only.
Space space_of(const RunConfig& config);
// What [sweep] asks of a study, whose trials have `steps`. The seed is run.seed.
StudyOptions study_options_of(const RunConfig& config, int64_t steps);

// A config as it was written, which is read anew with the values of each trial.
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
// As read_config reads the file with its sets and `more`. ConfigError with all problems.
RunConfig config_of(const ConfigSource& source, const std::vector<std::string>& more,
                    const KnownKinds& known);

// The config of a trial: the source with the trial's values, without [sweep]. ConfigError with all
// problems.
RunConfig trial_config(const ConfigSource& source, const TrialValues& values,
                       const KnownKinds& known);

// Whether the trial is the file itself, which has these values already.
bool is_as_written(const ConfigSource& source, const TrialValues& values, const KnownKinds& known);

// The points whose configs are tried: all combinations of choices and ends of ranges if there are
// at most `most`; else each choice and end with the others at their first and at their last.
std::vector<SpacePoint> corners_of(const Space& space, int64_t most = 256);

// Every problem that the config of some corner has, one line each: "[sweep] KEY=VALUE …: problem",
// with the values of the first corner that has it. Empty: all corners are valid.
std::vector<std::string> corner_problems(const ConfigSource& source, const Space& space,
                                         const KnownKinds& known);

}  // namespace tanren
