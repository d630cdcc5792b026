#include "tanren/blocks/recompute.h"

#include "tanren/base/error.h"
#include "tanren/base/generators.h"
#include "tanren/base/names.h"
#include "tanren/base/operator_listener.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/blocks/across_ranks.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/blocks/saved_tensors.h"
#include "tanren/blocks/stage.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/DimVector.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <utility>

namespace tanren {

namespace {

namespace autocast = at::autocast;

thread_local const RecomputeScope* recompute_scope = nullptr;

// The state of autocast on one kind of device when this was made; apply() restores it.
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

// Thrown to end a second pass that has brought all tensors. Not a std::exception, so that no model
// catches it as an error.
struct Complete {};

// The properties of a saved tensor that must be equal in both passes.
struct Likeness {
  at::ScalarType dtype;
  c10::DimVector sizes;
  bool operator==(const Likeness& other) const {
    return dtype == other.dtype && sizes == other.sizes;
  }
};

Likeness likeness_of(const at::Tensor& tensor) {
  return {tensor.scalar_type(), c10::DimVector(tensor.sizes())};
}

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// Note [Circles]
// A torch::autograd::Function that is interrupted while it saves still holds the tensors that it
// was about to save. If its own result is among them, that result holds the Function: a circle. The
// sequence number shows that such a Function was made in a second pass, whose graph is not needed,
// so the circle can be broken.
void break_circle(const WeakTensor& weak, uint64_t first_node) {
  auto alive = weak.lock();
  if (!alive) return;
  const at::Tensor tensor(std::move(alive));
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta == nullptr || !meta->grad_fn_ || meta->grad_fn_->sequence_nr() < first_node) return;
  if (meta->grad_fn_->name().find("CppNode<") != std::string::npos) meta->grad_fn_ = nullptr;
}

// One block of one forward: what its second pass needs, and the tensors that this pass brought.
struct Region {
  Region(const at::Tensor& block_input, std::function<at::Tensor(const at::Tensor&)> block)
      : input(block_input.detach()),
        input_requires_grad(block_input.requires_grad()),
        fn(std::move(block)),
        precision(block_input.device().type()),
        across_ranks(AcrossRanksScope::current()),
        listener(OperatorListenerScope::current()),
        generators(generator_states(block_input.device())) {
    if (const RandomScope* scope = RandomScope::current()) {
      random.emplace(Random{scope->seed(), scope->attempt(), scope->ids()});
    }
  }

  at::Tensor take(size_t index);
  void compute_again();
  void run_second_pass();
  // Takes the next tensor that an operator saves in the second pass. Throws Complete after the last
  // wanted tensor.
  void bring(const at::Tensor& tensor);

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
  std::shared_ptr<const GatherRows> across_ranks;
  std::shared_ptr<OperatorListener> listener;
  TensorMap generators;
  std::optional<Random> random;
  std::vector<Likeness> saved;      // by the first pass
  size_t num_wanted = 0;            // of `saved`, up to the last tensor that was dropped
  std::vector<at::Tensor> brought;  // by the second pass; each is handed out once
  std::vector<WeakTensor> results;  // saved results of operators of the second pass
};

// The policy for the tensors that the operators of a recomputed block save.
struct Recording final : SavedTensorPolicy {
  Recording(std::shared_ptr<Region> first, Region* second)
      : region(std::move(first)), again(second) {}
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;

  std::shared_ptr<Region> region;  // first pass: tensors are counted and dropped
  Region* again;                   // second pass: tensors are collected
};

class Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(const Recording& recording) : recording_(recording) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (recording_.again != nullptr) {
      // Detached: an output kept with its graph would keep the node that keeps the output.
      kept_ = tensor.detach();
      if (tensor.grad_fn()) recording_.again->results.emplace_back(tensor.getIntrusivePtr());
      recording_.again->bring(kept_);
      return;
    }
    // A parameter stays alive anyway and is not dropped. It is counted, so that both passes give
    // the same numbers.
    Region& region = *recording_.region;
    index_ = region.saved.size();
    region.saved.push_back(likeness_of(tensor));
    // A view that was made without gradients reports that it is a leaf, but is not a parameter.
    if (tensor.is_leaf() && tensor.requires_grad() && !tensor.is_view()) {
      kept_ = tensor;
    } else {
      region_ = recording_.region;
      region.num_wanted = index_ + 1;
    }
  }
  at::Tensor call_unpack_hook() override { return region_ ? region_->take(index_) : kept_; }

 private:
  const Recording& recording_;  // valid during the forward only
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

void Region::bring(const at::Tensor& tensor) {
  if (brought.size() < num_wanted) {
    const Likeness& first = saved[brought.size()];
    if (const Likeness second = likeness_of(tensor); !(second == first)) {
      throw Error(fmt::format(
          "[recompute] a block saved {} [{}] for backward, and {} [{}] in its place when it was "
          "computed again; a recomputed block must do the same each time",
          c10::toString(first.dtype), fmt::join(first.sizes, ", "), c10::toString(second.dtype),
          fmt::join(second.sizes, ", ")));
    }
    brought.push_back(tensor);
  }
  if (brought.size() == num_wanted) throw Complete();
}

void Region::compute_again() {
  brought.clear();
  results.clear();
  std::vector<at::Tensor> statistics;
  for (const auto& buffer : buffers) statistics.push_back(buffer.clone());
  const TensorMap drawn = generator_states(input.device());
  const AutocastState now(input.device().type());

  const bool has_scope = autocast::increment_nesting() > 1;
  const auto restore = [&] {
    autocast::decrement_nesting();
    now.apply();
    set_generator_states(input.device(), drawn);
    // Batch norm writes its statistics without counting a version, and saves them. The restoring
    // copy must not count a version either.
    const at::AutoDispatchBelowADInplaceOrView uncounted;
    for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(statistics[i]);
  };
  try {
    precision.apply();
    // The cache of casts belongs to the whole process. A device's backward runs on a thread without
    // a scope that will clear it, so it neither fills the cache nor clears what others keep there.
    if (!has_scope) autocast::set_autocast_cache_enabled(false);
    set_generator_states(input.device(), generators);
    run_second_pass();
  } catch (...) {
    try {
      restore();
    } catch (const std::exception&) {  // a failed device restores nothing; the first error counts
    }
    throw;
  }
  restore();
}

void Region::run_second_pass() {
  const uint64_t first_node = at::sequence_number::peek();
  BlockTrail& trail = block_trail();
  const uint16_t failed = trail.failed;
  std::optional<RandomScope> scope;
  if (random) scope.emplace(random->seed, random->attempt, random->ids);
  const AcrossRanksScope among_ranks(across_ranks);
  const OperatorListenerScope heard(listener);
  const NoStageScope within_the_block;

  auto nothing_of_a_failure = c10::make_scope_exit([this] { brought.clear(); });
  Recording second(nullptr, this);
  const SavedTensorScope recorded(&second);
  const at::AutoGradMode with_gradients(true);
  // fn gets an alias, not the leaf: autocast would keep the cast of a leaf until the window ends,
  // as it does for weights. Not a view: an alias keeps all strides, while a view chooses its own
  // for dims of size 1, and convolutions look at these.
  const at::Tensor leaf = input.detach().requires_grad_(input_requires_grad);
  try {
    fn(at::alias(leaf));
  } catch (const Complete&) {
    trail.failed = failed;  // inner blocks took Complete for a failure
    for (const auto& result : results) break_circle(result, first_node);  // Note [Circles]
  }
  if (brought.size() < num_wanted) {
    throw Error(
        fmt::format("[recompute] a block saved {} tensors for backward, and {} when it was "
                    "computed again; a recomputed block must do the same each time",
                    num_wanted, brought.size()));
  }
  results.clear();
  nothing_of_a_failure.release();
}

}  // namespace

RecomputeScope::RecomputeScope(std::vector<std::string> patterns, std::vector<at::Tensor> buffers)
    : patterns_(std::move(patterns)), buffers_(std::move(buffers)), outer_(recompute_scope) {
  require_saved_tensor_engine();
  recompute_scope = this;
}

RecomputeScope::~RecomputeScope() { recompute_scope = outer_; }

bool in_recomputed_block() {
  return dynamic_cast<const Recording*>(SavedTensorScope::current()) != nullptr;
}

bool RecomputeScope::wants(std::string_view name) {
  // Inner blocks of a recomputed block are part of it, in both passes.
  return recompute_scope != nullptr && at::GradMode::is_enabled() && !in_recomputed_block() &&
         matches_any(recompute_scope->patterns_, std::string(name));
}

at::Tensor run_recomputed(const at::Tensor& input,
                          const std::function<at::Tensor(const at::Tensor&)>& fn,
                          const torch::nn::Module* module) {
  Recording first(std::make_shared<Region>(input, fn), nullptr);
  if (module != nullptr) {
    first.region->buffers = module->buffers();
  } else if (recompute_scope != nullptr) {
    first.region->buffers = recompute_scope->buffers_;
  }
  const SavedTensorScope recorded(&first);
  return fn(input);
}

at::Tensor run_recomputed(const at::Tensor& input,
                          const std::function<at::Tensor(const at::Tensor&)>& fn) {
  return run_recomputed(input, fn, nullptr);
}

}  // namespace tanren
