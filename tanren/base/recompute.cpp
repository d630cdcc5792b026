#include "tanren/base/recompute.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/names.h"
#include "tanren/base/random.h"
#include "tanren/base/saved_tensors.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <optional>
#include <utility>

namespace tanren {

namespace {

namespace autocast = at::autocast;

thread_local const RecomputeScope* recompute_scope = nullptr;

// The state of autocast on one kind of device, put back when it ends.
class AutocastState {
 public:
  explicit AutocastState(c10::DeviceType device)
      : device_(device),
        enabled_(autocast::is_autocast_enabled(device)),
        cached_(autocast::is_autocast_cache_enabled()),
        dtype_(autocast::get_autocast_dtype(device)) {}
  void apply() const {
    autocast::set_autocast_enabled(device_, enabled_);
    autocast::set_autocast_cache_enabled(cached_);
    autocast::set_autocast_dtype(device_, dtype_);
  }

 private:
  c10::DeviceType device_;
  bool enabled_, cached_;
  at::ScalarType dtype_;
};

// One block of one forward: what its second pass needs, and what that pass brought.
struct Region {
  Region(const at::Tensor& block_input, std::function<at::Tensor(const at::Tensor&)> block)
      : input(block_input.detach()),
        input_requires_grad(block_input.requires_grad()),
        fn(std::move(block)),
        precision(block_input.device().type()),
        generators(generator_states(block_input.device())) {
    if (const RandomScope* scope = RandomScope::current()) {
      random.emplace(Random{scope->seed(), scope->attempt(), scope->ids()});
    }
  }

  at::Tensor take(size_t index);
  void compute_again();

  struct Random {
    uint64_t seed;
    int64_t attempt;
    at::Tensor ids;
  };
  at::Tensor input;
  bool input_requires_grad;
  std::function<at::Tensor(const at::Tensor&)> fn;
  std::vector<at::Tensor> buffers;
  AutocastState precision;
  TensorMap generators;
  std::optional<Random> random;
  size_t num_saved = 0;             // by the first pass
  std::vector<at::Tensor> brought;  // by the second; each is given away once
};

// What the operators of a recomputed block do with what they save.
struct Recording final : SavedTensorPolicy {
  Recording(std::shared_ptr<Region> first, std::vector<at::Tensor>* second)
      : region(std::move(first)), brought(second) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;

  std::shared_ptr<Region> region;    // of the first pass: count and drop
  std::vector<at::Tensor>* brought;  // of the second: collect
};

class Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(const Recording& recording) : recording_(recording) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (recording_.brought != nullptr) {
      // The node keeps its own copy: with its graph, an output would keep the node that keeps it.
      kept_ = tensor.detach();
      recording_.brought->push_back(kept_);
      return;
    }
    // A parameter lives on anyway; but it counts, so that both passes number alike.
    index_ = recording_.region->num_saved++;
    // (A view that was made without gradients calls itself a leaf, and is none.)
    if (tensor.is_leaf() && tensor.requires_grad() && !tensor.is_view()) {
      kept_ = tensor;
    } else {
      region_ = recording_.region;
    }
  }
  at::Tensor call_unpack_hook() override { return region_ ? region_->take(index_) : kept_; }

 private:
  const Recording& recording_;  // for the forward alone
  at::Tensor kept_;
  std::shared_ptr<Region> region_;
  size_t index_ = 0;
};

std::unique_ptr<torch::autograd::SavedVariableHooks> Recording::hooks() {
  return std::make_unique<Hooks>(*this);
}

at::Tensor Region::take(size_t index) {
  if (index >= brought.size() || !brought[index].defined()) compute_again();
  return std::exchange(brought[index], at::Tensor());
}

void Region::compute_again() {
  brought.clear();
  std::vector<at::Tensor> statistics;
  for (const auto& buffer : buffers) statistics.push_back(buffer.clone());
  const TensorMap drawn = generator_states(input.device());
  const AutocastState now(input.device().type());

  autocast::increment_nesting();
  const auto restore = c10::make_scope_exit([&] {
    if (autocast::decrement_nesting() == 0) autocast::clear_cache();
    now.apply();
    set_generator_states(input.device(), drawn);
    // Batch norm writes its statistics without counting a version, and saves them: so they go back.
    const at::AutoDispatchBelowADInplaceOrView uncounted;
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(statistics[i]);
  });
  precision.apply();
  set_generator_states(input.device(), generators);
  std::optional<RandomScope> scope;
  if (random) scope.emplace(random->seed, random->attempt, random->ids);

  std::vector<at::Tensor> collected;
  Recording second(nullptr, &collected);
  const SavedTensorScope recorded(&second);
  const at::AutoGradMode with_gradients(true);
  // Not a leaf: autocast would keep its cast, as it does of weights, until the window ends.
  const at::Tensor leaf = input.detach().requires_grad_(input_requires_grad);
  fn(leaf.view_as(leaf));
  if (collected.size() != num_saved) {
    throw Error("[recompute] a block saved " + std::to_string(num_saved) +
                " tensors for backward, and " + std::to_string(collected.size()) +
                " when it was computed again; a recomputed block must do the same each time");
  }
  brought = std::move(collected);
}

}  // namespace

RecomputeScope::RecomputeScope(std::vector<std::string> patterns, std::vector<at::Tensor> buffers)
    : patterns_(std::move(patterns)), buffers_(std::move(buffers)), outer_(recompute_scope) {
  install_saved_tensor_engine();
  recompute_scope = this;
}

RecomputeScope::~RecomputeScope() { recompute_scope = outer_; }

bool RecomputeScope::wants(std::string_view name) {
  // Within a recomputed block, and in its second pass, blocks are parts of it.
  return recompute_scope != nullptr && at::GradMode::is_enabled() &&
         dynamic_cast<const Recording*>(SavedTensorScope::current()) == nullptr &&
         matches_any(recompute_scope->patterns_, std::string(name));
}

at::Tensor run_recomputed(const at::Tensor& input,
                          const std::function<at::Tensor(const at::Tensor&)>& fn) {
  Recording first(std::make_shared<Region>(input, fn), nullptr);
  if (recompute_scope != nullptr) first.region->buffers = recompute_scope->buffers_;
  const SavedTensorScope recorded(&first);
  return fn(input);
}

}  // namespace tanren
