// Optimizer state in a file for each rank: the state of its slices of parameters if ranks share it,
// or of its whole parameters if it holds a stage of the model. A StoredState returns any range of
// the state, from slices or from whole tensors, so that it loads on any other number of ranks.
// Mapped files are read where they are touched. Invariant: a slice is a range of a parameter's
// elements in their order in memory, which may differ from that of its shape.
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

// A rank's part of the state. Without slices it is whole, under the parameters' names.
struct SlicedState {
  State state;
  std::vector<StateSlice> slices;
};

// Writes one rank's file: safetensors, with the slices and the plain values as JSON in its
// metadata.
void write_slices(const std::filesystem::path& path, const State& state,
                  const std::vector<StateSlice>& slices);
// Adds the file's tensors, values and slices to `state` and `slices`. CheckpointError naming the
// file, also if it has a tensor that `state` has already.
void read_slices(const std::filesystem::path& path, State& state, std::vector<StateSlice>& slices);

// A range of a parameter's elements whose state is requested.
struct StateRange {
  std::string whole;
  int64_t begin = 0, end = 0;
  std::vector<int64_t> sizes, strides;  // of the parameter in this process
};

class StoredState {
 public:
  // Without slices, `state` is whole, under the parameters' names. Keeps references to both
  // arguments.
  StoredState(const State& state, const std::vector<StateSlice>& slices);

  // The state `key` ("exp_avg") of a range, 1-dim in the order of memory here, or 0-dim if it is
  // one number for the parameter. A packed moment has one scale ("exp_avg_scales") for each block,
  // or one for each element if the writer's memory order was different. CheckpointError if a part
  // of the range is missing.
  at::Tensor range(const StateRange& wanted, const std::string& key) const;
  // Whether the state has `key` for the parameter, or for its first slice.
  bool has(const std::string& whole, const std::string& key) const;
  // The plain value `key` ("started") of the parameter, or of its first slice; null: there is none.
  const Value* value(const std::string& whole, const std::string& key) const;
  // The whole state, under the parameters' names and in their shapes.
  State joined() const;

 private:
  at::Tensor from_whole(const StateRange& wanted, const std::string& key) const;
  at::Tensor from_slices(const StateRange& wanted, const std::string& key) const;

  const State& state_;
  std::map<std::string, std::vector<const StateSlice*>> slices_;  // by whole, rising; empty: whole
};

}  // namespace tanren
