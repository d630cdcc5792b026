// Optimizer state that ranks share: each keeps that of its slices, and writes it to a file of its own. A
// StoredState hands any range of it out again, from such slices or from whole tensors, so that it loads
// on any other number of ranks; mapped files are read where they are touched. Invariant: a slice is a
// range of a parameter's elements as they lie in memory, whatever order its shape would give them.
#pragma once

#include "tanren/base/state.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tanren {

struct StateSlice {
  std::string name;   // its tensors are "<name>.exp_avg", …
  std::string whole;  // name of the parameter
  int64_t begin = 0, end = 0;
  std::vector<int64_t> sizes, strides;  // of the parameter
};

// One rank's file: safetensors, with the slices and the plain values as JSON in its metadata.
void write_slices(const std::filesystem::path& path, const State& state,
                  const std::vector<StateSlice>& slices);
// Adds the file's to what there is. CheckpointError naming the file.
void read_slices(const std::filesystem::path& path, State& state, std::vector<StateSlice>& slices);

// What one wants to have of a parameter.
struct StateRange {
  std::string whole;
  int64_t begin = 0, end = 0;
  std::vector<int64_t> sizes, strides;  // of the parameter here
};

class StoredState {
 public:
  // Without slices `state` is whole, under the parameters' names. Refers to both.
  StoredState(const State& state, const std::vector<StateSlice>& slices);

  // The state `key` ("exp_avg") of a range, 1-dim in the order of memory here, or 0-dim where it is one
  // number of the parameter. Scales of a packed moment ("exp_avg_scales") are one for each block, or one
  // for each element where the writer's order of memory was another. CheckpointError where it is not all
  // there.
  at::Tensor range(const StateRange& wanted, const std::string& key) const;
  // Whether it has `key` of the parameter, or of its first slice.
  bool has(const std::string& whole, const std::string& key) const;
  // The same of its plain values ("started"); null: there is none.
  const Value* value(const std::string& whole, const std::string& key) const;
  // All of it, whole, under the parameters' names and in their shapes.
  State joined() const;

 private:
  at::Tensor from_whole(const StateRange& wanted, const std::string& key) const;
  at::Tensor from_slices(const StateRange& wanted, const std::string& key) const;

  const State& state_;
  std::map<std::string, std::vector<const StateSlice*>> slices_;  // by whole, rising; empty: whole
};

}  // namespace tanren
