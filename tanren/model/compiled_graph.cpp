#include "tanren/model/compiled_graph.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/graph_facts.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace tanren {

namespace fs = std::filesystem;

namespace {

using torch::autograd::variable_list;

class GraphBackward : public torch::autograd::Node {
 public:
  GraphBackward(torch::autograd::edge_list&& next, std::vector<at::Tensor> seeds, bool has_seeds,
                std::vector<at::Tensor> gradients)
      : Node(std::move(next)),
        seeds_(std::move(seeds)),
        has_seeds_(has_seeds),
        gradients_(std::move(gradients)) {}

  // A gradient is moved out, so that nothing here keeps its memory.
  variable_list apply(variable_list&& begins) override {
    if (std::exchange(is_used_, true)) {
      throw Error("[model] a package's gradients serve one backward, and this is the second");
    }
    if (has_seeds_) check_seeds(begins);
    if (!has_seeds_ && begins.size() > 1) {
      throw Error(
          "[model] a package with several terms has their gradients in one sum; train it by "
          "update(), which gives it each term's seed before the forward");
    }
    variable_list results(gradients_.size());
    for (size_t i = 0; i < gradients_.size(); ++i) {
      at::Tensor gradient = std::move(gradients_[i]);
      if (!task_should_compute_output(i)) continue;
      if (!has_seeds_) {
        gradient = gradient * begins[0];
      } else if (gradient.storage().use_count() > 1) {
        gradient = gradient.clone();  // a part of another output
      }
      results[i] = std::move(gradient);
    }
    return results;
  }
  void release_variables() override {
    gradients_.clear();
    is_used_ = true;
  }
  std::string name() const override { return "GraphBackward"; }

 private:
  void check_seeds(const variable_list& begins) const {
    for (size_t i = 0; i < begins.size(); ++i) {
      if (begins[i].is_same(seeds_[i])) continue;
      throw Error(
          "[model] a package's gradients were computed with other seeds than those its backward "
          "begins with; call its terms' backward as update() does, once, with LossSeeds");
    }
  }

  std::vector<at::Tensor> seeds_;
  bool has_seeds_;
  std::vector<at::Tensor> gradients_;
  bool is_used_ = false;
};

// Whether this process has mapped the file itself. dlopen identifies code by its name. If this
// process has ever loaded a package that was then exported again, dlopen returns the older code.
bool is_mapped(const fs::path& file) {
  struct stat status {};
  std::error_code error;
  const std::string name = fs::canonical(file, error).string();
  if (error || ::stat(name.c_str(), &status) != 0) return false;
  std::ifstream maps("/proc/self/maps");
  if (!maps) return true;  // this system has no such file
  return maps_have(maps, name, status.st_dev, status.st_ino);
}

}  // namespace

bool maps_have(std::istream& maps, const fs::path& file, dev_t device, ino_t inode) {
  const std::string own_device = fmt::format("{:02x}:{:02x}", major(device), minor(device));
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string range, rights, offset, at_device, path;
    ino_t at_inode = 0;
    words >> range >> rights >> offset >> at_device >> at_inode >> std::ws;
    std::getline(words, path);
    // Some layered file systems have other numbers here, so an equal name is enough.
    if (path == file.string()) return true;
    if (at_inode != inode) continue;
    if (at_device == own_device || fs::path(path).filename() == file.filename()) return true;
  }
  return false;
}

int64_t num_refusals(at::Device device) {
  const auto of_cpu = static_cast<int64_t>(memory_tag().refusals);
  if (device.is_cpu()) return of_cpu;
  return of_cpu + at::accelerator::getDeviceStats(device.index()).num_ooms;
}

CompiledGraph::CompiledGraph(fs::path file, std::string device, std::function<void()> check)
    : file_(std::move(file)), device_(std::move(device)), check_(std::move(check)) {
  if (device_ == "cpu") loaded(-1);
}

CompiledGraph::~CompiledGraph() = default;

torch::inductor::AOTIModelContainerRunner& CompiledGraph::loaded(c10::DeviceIndex index) {
  const std::lock_guard lock(mutex_);
  if (runner_) return *runner_;
  check_();
  const auto& loaders = torch::inductor::getAOTIModelRunnerRegistry();
  const auto found = loaders.find(device_);
  if (found == loaders.end()) {
    throw ConfigError(fmt::format(
        "[model] {} is compiled for {}, which this libtorch cannot load; export it for the CPU",
        file_.string(), device_));
  }
  const std::string device =
      index < 0 ? device_ : fmt::format("{}:{}", device_, static_cast<int>(index));
  std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner;
  try {
    runner = found->second(fs::absolute(file_).string(), /*num_models=*/1, device,
                           /*bin_dir=*/"", /*run_single_threaded=*/false);
  } catch (...) {
    rethrow_known();
    throw ConfigError(
        one_line(fmt::format("[model] {} cannot be loaded: {}; export the package on "
                             "a machine like this one",
                             file_.string(), line_of_current())));
  }
  check_();
  if (is_mapped(file_)) return *(runner_ = std::move(runner));
  throw ConfigError(
      one_line(fmt::format("[model] {} was exported anew, and this process holds the older code; "
                           "start the program again",
                           file_.string())));
}

std::vector<at::Tensor> CompiledGraph::run(std::vector<at::Tensor> inputs) {
  const at::Device device = inputs.empty() ? at::Device(at::kCPU) : inputs.front().device();
  auto& runner = loaded(device.index());
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const int64_t refusals = num_refusals(device);
  try {
    return runner.boxed_run(std::move(inputs));
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::exception& error) {
    TORCH_CHECK_WITH(OutOfMemoryError, num_refusals(device) == refusals, "[memory] no room in ",
                     file_.string());
    throw std::runtime_error(one_line(fmt::format("{} {} failed, as said on stderr ({})",
                                                  kGraphFailure, file_.string(), line_of(error))));
  }
}

Terms graph_terms(GraphResults results) {
  if (!torch::autograd::compute_requires_grad(at::TensorList(results.parameters))) {
    return std::move(results.terms);
  }
  const auto node = std::make_shared<GraphBackward>(
      torch::autograd::collect_next_edges(results.parameters), std::move(results.seeds),
      results.has_seeds, std::move(results.gradients));
  for (const Term& term : results.terms) torch::autograd::set_history(term.sum, node);
  return std::move(results.terms);
}

}  // namespace tanren
