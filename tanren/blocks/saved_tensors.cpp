#include "tanren/blocks/saved_tensors.h"

#include "tanren/base/error.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <utility>

namespace tanren {

namespace {

thread_local SavedTensorPolicy* policy_now = nullptr;

// torch's autograd engine, except that the thread's SavedTensorPolicy gives the hooks for saved
// tensors.
class Engine final : public torch::autograd::Engine {
 public:
  ~Engine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return policy_now != nullptr ? policy_now->hooks() : nullptr;
  }
};

[[maybe_unused]] const bool kInstalled = [] {
  torch::autograd::set_default_engine_stub(+[]() -> torch::autograd::Engine& {
    static Engine engine;
    return engine;
  });
  return true;
}();

}  // namespace

void require_saved_tensor_engine() {
  if (dynamic_cast<Engine*>(&torch::autograd::Engine::get_default_engine()) != nullptr) return;
  throw Error(
      "[memory] another library (libtorch_python) has installed its own autograd engine, so no "
      "block can be recomputed or offloaded; empty memory.recompute and memory.offload");
}

SavedTensorScope::SavedTensorScope(SavedTensorPolicy* policy)
    : before_(std::exchange(policy_now, policy)) {}

SavedTensorScope::~SavedTensorScope() { policy_now = before_; }

SavedTensorPolicy* SavedTensorScope::current() { return policy_now; }

}  // namespace tanren
