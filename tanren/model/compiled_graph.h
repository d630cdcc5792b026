// CompiledGraph: a shared object of torch's AOTInductor, loaded and called without Python. It is a
// pure function of tensors, so a failure changes nothing. `graph_terms` gives autograd the results
// of a graph of forward and backward: the sums of terms, and the gradients that their backward
// returns. Called by package.cpp.
#pragma once

#include "tanren/base/terms.h"

#include <ATen/core/Tensor.h>

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace torch::inductor {
class AOTIModelContainerRunner;
}

namespace tanren {

// How often an allocation of this thread, or on the accelerator, has failed so far. Callers compare
// two counts to recognise an out-of-memory error, because an exception loses its type in a graph's
// C interface and in TorchScript's interpreter.
int64_t num_refusals(at::Device device);

// Whether the lines of /proc/PID/maps show this file, a canonical path, as mapped.
bool maps_have(std::istream& maps, const std::filesystem::path& file, dev_t device, ino_t inode);

// Thread-safe. Concurrent calls of one graph run one after the other.
class CompiledGraph {
 public:
  // `device` is cpu or cuda, the one that the graph was compiled for. A graph for the CPU is loaded
  // at once; a graph for an accelerator is loaded by `load` or at its first call. ConfigError with
  // the loader's message if it cannot be loaded. `check` is called before and after loading, and
  // throws if the file is no longer the right one.
  CompiledGraph(std::filesystem::path file, std::string device, std::function<void()> check);
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  // Loads it for that device, unless it is loaded.
  void load(at::Device device) { loaded(device.index()); }

  // The graph's outputs for inputs on its device, without autograd and autocast.
  // c10::OutOfMemoryError if an allocation failed during the call. std::runtime_error beginning
  // with kGraphFailure for any other failure; its full message is only on stderr.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs);

 private:
  torch::inductor::AOTIModelContainerRunner& loaded(c10::DeviceIndex index);

  std::filesystem::path file_;
  std::string device_;
  std::function<void()> check_;
  std::mutex mutex_;  // held while the graph is loaded
  std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner_;
};

// The results of a graph of forward and backward.
struct GraphResults {
  Terms terms;                         // without graphs
  std::vector<at::Tensor> seeds;       // one per term; the gradients were computed with them
  bool has_seeds = true;               // false: the gradients were computed with seeds of 1
  std::vector<at::Tensor> parameters;  // those that have gradients
  std::vector<at::Tensor> gradients;   // one per parameter
};

// The terms, with an autograd graph of one node that gives each parameter its gradient. The node's
// backward throws an Error unless its incoming gradients are exactly the seeds, each the same
// tensor. An undefined seed means that backward must not begin at its term. Without seeds there may
// be only one term, and backward multiplies the gradients by its incoming gradient. A second
// backward throws an Error.
Terms graph_terms(GraphResults results);

}  // namespace tanren
