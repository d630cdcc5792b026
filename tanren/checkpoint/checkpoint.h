// Checkpoints: step folders that are complete or invisible. Written under a temporary name, every
// file flushed, renamed; the manifest has sizes and checksums, the marker COMPLETE comes last.
//   step-<n>/ model.safetensors optimizer.safetensors average.safetensors (if weights are averaged)
//             random.safetensors state.json config.toml plan.txt origin.json (if there is one)
//             manifest.json COMPLETE
// Where ranks share the optimizer's state, optimizer-<rank>-of-<ranks>.safetensors stand for the one file.
//   best      a link to the best of them
// One writer at a time (the run folder's lock sees to it).
#pragma once

#include "tanren/base/state.h"
#include "tanren/checkpoint/stored_state.h"
#include "tanren/comm/communicator.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct Snapshot {
  State model;  // weights and buffers
  State optimizer;
  State average;  // averaged weights; empty: none
  State run;      // counters, cursor, scaler, guard, generator
  std::string config_toml;
  std::string plan_text;
  std::vector<StateSlice> slices = {};  // of the optimizer's state; empty: it is whole
  std::string origin = {};              // JSON: its data, and changes on the way; empty: not known
};

// Writes folder/step-<step> and keeps the newest `keep` complete ones and those of the steps `best`
// (best first), to the first of which the link folder/best then leads. Returns the step folder.
// RunError where the disk refuses; then nothing is visible and older checkpoints are untouched.
std::filesystem::path write_checkpoint(const std::filesystem::path& folder, int64_t step,
                                       const Snapshot& snapshot, int64_t keep,
                                       const std::vector<int64_t>& best = {});

// The same where ranks share the optimizer's state: every rank gives its own slices of it at the same
// time, and writes them; rank 0 writes the rest, and makes the folder visible once all have flushed
// theirs. All return, or throw: RunError naming the rank that could not.
std::filesystem::path write_shared_checkpoint(const std::filesystem::path& folder, int64_t step,
                                              const Snapshot& snapshot, int64_t keep,
                                              const std::vector<int64_t>& best,
                                              Communicator& ranks);

// The complete step folder with the highest step; nothing if there is none.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

// The complete step folder of `step`, or the one that the link `best` leads to; nothing if there is
// none.
std::optional<std::filesystem::path> checkpoint_of_step(const std::filesystem::path& folder,
                                                        int64_t step);
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& folder);

// A step folder's origin.json, not verified: for what is decided before the rest is read. Empty where
// there is none, as in older checkpoints.
std::string origin_of(const std::filesystem::path& step_folder);

// Counters and all else of a step folder's run that is no tensor; not verified, for the same reason.
// CheckpointError where the file is damaged.
std::map<std::string, Value> run_values_of(const std::filesystem::path& step_folder);

// Reads and verifies a step folder. CheckpointError naming the file and what is wrong with it. Tensors
// are read when they are touched. Of several ranks that read it each verifies its share of the files that
// hold slices, and all of the others.
Snapshot read_checkpoint(const std::filesystem::path& step_folder, int64_t rank = 0,
                         int64_t ranks = 1);

}  // namespace tanren
