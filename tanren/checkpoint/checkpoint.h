// Checkpoints: step folders that are either complete or invisible. A folder is written under a
// temporary name, every file is flushed, then the folder is renamed. The manifest has sizes and
// checksums; the marker COMPLETE is the last file written.
//   step-<n>/ model.safetensors optimizer.safetensors average.safetensors (if weights are averaged)
//             random.safetensors state.json config.toml plan.txt origin.json (if there is one)
//             manifest.json COMPLETE
//   best      a link to the best step folder
// If several ranks hold parts of the state, each rank writes its own part. If ranks share the
// optimizer's state, there are optimizer-<part>-of-<parts>.safetensors instead of
// optimizer.safetensors. If each rank holds a stage of the model, the weights and the averages are
// in parts, too, each with an index (model.safetensors.index.json). Only one process writes at a
// time (the run folder's lock ensures it).
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

// The part that this rank writes of a kind of file.
struct FilePart {
  int64_t part = 0;   // below 0: another rank writes what this one holds
  int64_t parts = 1;  // 1: one whole file, which rank 0 writes
};

struct SnapshotParts {
  FilePart model, optimizer;            // the averages are in parts as the model is
  std::vector<std::string> names = {};  // all tensors of a model in parts, in the model's order
};

struct Snapshot {
  State model;  // weights and buffers
  State optimizer;
  State average;  // averaged weights; empty: none
  State run;      // counters, cursor, scaler, guard, generator
  std::string config_toml;
  std::string plan_text;
  std::vector<StateSlice> slices = {};  // of the optimizer's state; empty: it is whole
  std::string origin = {};              // JSON: the run's data, changes in the run; empty: unknown
  SnapshotParts parts = {};             // to write; a snapshot that was read is whole
};

// Writes folder/step-<step>. Keeps the newest `keep` complete step folders and those of the steps
// `best` (best first), and points the link folder/best to the first of these. Returns the step
// folder. RunError if the disk fails; then nothing new is visible and older checkpoints are
// untouched.
std::filesystem::path write_checkpoint(const std::filesystem::path& folder, int64_t step,
                                       const Snapshot& snapshot, int64_t keep,
                                       const std::vector<int64_t>& best = {});

// The same if ranks hold parts of the state. All ranks call this function at the same time, and
// each writes its own `snapshot.parts`. Rank 0 writes the rest and makes the folder visible once
// all ranks have flushed their parts. Either all ranks return or all throw a RunError naming the
// failed rank.
std::filesystem::path write_shared_checkpoint(const std::filesystem::path& folder, int64_t step,
                                              const Snapshot& snapshot, int64_t keep,
                                              const std::vector<int64_t>& best,
                                              Communicator& ranks);

// The complete step folder with the highest step; nothing if there is none.
std::optional<std::filesystem::path> latest_checkpoint(const std::filesystem::path& folder);

// The complete step folder of `step`, or that of the link `best`; nothing if there is none.
std::optional<std::filesystem::path> checkpoint_of_step(const std::filesystem::path& folder,
                                                        int64_t step);
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& folder);

// A step folder's origin.json. It is not verified, because decisions before the rest is read need
// it. Empty if there is none, as in older checkpoints.
std::string origin_of(const std::filesystem::path& step_folder);

// The plain values (counters and others) of a step folder's run state, not verified for the same
// reason. CheckpointError if the file is damaged.
std::map<std::string, Value> run_values_of(const std::filesystem::path& step_folder);

// Reads and verifies a step folder, whatever number of ranks wrote it. CheckpointError naming the
// file and what is wrong with it. Tensors are read when they are touched. If several ranks read it
// together, each rank verifies its share of the part files and all other files.
Snapshot read_checkpoint(const std::filesystem::path& step_folder, int64_t rank = 0,
                         int64_t ranks = 1);

}  // namespace tanren
