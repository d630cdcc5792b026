// What a sweep is and where it lies: its config as it was written, and its folder:
//   sweep.json                         the config's text, where it stood, and --set
//   journal.jsonl                      what happened (tanren/sweep/journal.h)
//   trials/0007/                       a run folder each; output.txt has what the run printed
//   confirm/0007-seed-4/, file-seed-4/ the same of confirming runs (tanren/sweep/confirmation.h)
//   leaderboard.json, leaderboard.txt, sweep.html
//   time.json                          how long it took
//   best                               link to the best trial
//   find/                              what sweep.find found (find_rate.h)
// Used by the verb sweep and the files beside this one.
#pragma once

#include "tanren/sweep/confirmation.h"
#include "tanren/sweep/corners.h"
#include "cli/verbs.h"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace tanren::cli {

constexpr const char* kSweepSource = "sweep.json";
constexpr const char* kFound = "find";

struct SweepPlace {
  std::filesystem::path folder;
  ConfigSource source;
  RunConfig config;  // with [sweep]
  bool has_begun = false;

  std::filesystem::path journal() const { return folder / "journal.jsonl"; }
  std::filesystem::path trials() const { return folder / "trials"; }
  std::filesystem::path trial(int64_t id) const;
  std::filesystem::path confirming(const ConfirmingRun& run) const;
};

// The sweep that `arguments` name by a config file or a sweep's folder. Checks all that needs no
// process: every problem of every corner of its space, and whether its folder is free or of the
// same sweep. Writes nothing. ConfigError or InputError.
SweepPlace read_sweep(const Arguments& arguments, const Registry& registry);

// InputError if there is a folder of a trial, or of a run that confirms one, that the journal of
// `num_trials` trials does not have. The journal was then replaced by another one, whose trials
// would take the results in these folders.
void check_trials(const SweepPlace& place, int64_t num_trials);

// Writes sweep.json. RunError as write_file.
void write_source(const SweepPlace& place);

}  // namespace tanren::cli
