// CompiledGraph: a shared object of torch's AOTInductor, loaded and called without Python. It is a
// pure function of tensors: a failure leaves no trace. `graph_terms` gives autograd what a graph of
// forward and backward computed: its sums of terms, and behind them its gradients.
// Called by package.cpp.
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

// How often this thread, or the accelerator, was refused memory so far. An exception loses its type
// on the way through a graph's C interface, and through TorchScript's interpreter.
int64_t num_refusals(at::Device device);

// Whether the lines of /proc/PID/maps show this file, a canonical path, as mapped.
bool maps_have(std::istream& maps, const std::filesystem::path& file, dev_t device, ino_t inode);

// Thread-safe; calls of one graph follow one another.
class CompiledGraph {
 public:
  // `device`: cpu or cuda, for which it was compiled. A graph for the CPU is loaded at once, for an
  // accelerator by `load` or at its first call. ConfigError with the loader's words if it cannot be
  // loaded. `check` is called before and after it is loaded, and throws if the file is no longer
  // the right one.
  CompiledGraph(std::filesystem::path file, std::string device, std::function<void()> check);
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  // Loads it for that device, unless it is loaded.
  void load(at::Device device) { loaded(device.index()); }

  // The graph's outputs for inputs on its device, without autograd and autocast.
  // c10::OutOfMemoryError if an allocator refused memory meanwhile. std::runtime_error beginning
  // with kGraphFailure for any other failure, whose words are on stderr alone.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs);

 private:
  torch::inductor::AOTIModelContainerRunner& loaded(c10::DeviceIndex index);

  std::filesystem::path file_;
  std::string device_;
  std::function<void()> check_;
  std::mutex mutex_;  // held while the graph is loaded
  std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner_;
};

// What a graph of forward and backward has computed.
struct GraphResults {
  Terms terms;                         // without graphs
  std::vector<at::Tensor> seeds;       // of each term, that the gradients were computed with
  bool has_seeds = true;               // false: they are 1, whatever backward begins with
  std::vector<at::Tensor> parameters;  // that have gradients
  std::vector<at::Tensor> gradients;   // of each of these
};

// The terms, with a graph of one node that gives each parameter its gradient. Its backward throws
// an Error unless it begins with exactly these seeds, each the same tensor (undefined ones: at none
// of these terms); without seeds a single term's gradients are multiplied by what it begins with.
// It serves one backward.
Terms graph_terms(GraphResults results);

}  // namespace tanren
