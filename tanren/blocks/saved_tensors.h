// What operators do with the tensors that they save for backward. By default they keep them; a policy
// of this thread may put each away otherwise (recompute.h, offload.h). libtorch asks the one engine of
// the process for it, so the engine is here, and policies share it.
// Not for programs that have libtorch_python loaded: that installs an engine of its own.
#pragma once

#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace tanren {

class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  // For one tensor that an operator is about to save; null: it keeps the tensor.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

// Before the first scope; does nothing the next times.
void install_saved_tensor_engine();

// The policy of this thread's operators while it lives, instead of the one before; null: none.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorPolicy* policy);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;

  static SavedTensorPolicy* current();

 private:
  SavedTensorPolicy* before_;
};

}  // namespace tanren
