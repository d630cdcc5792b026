// Decides what operators do with the tensors that they save for backward. By default they keep
// them; a policy of this thread may store each tensor in another way (recompute.h, offload.h).
// libtorch asks the process's engine for this, so all policies share the engine of this file. It is
// installed when the program starts, because the first backward starts threads for every device
// that no later engine can use. If libtorch_python has installed its own engine, recompute and
// offload fail.
#pragma once

#include <memory>

namespace torch::autograd {
struct SavedVariableHooks;
}

namespace tanren {

class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  // Called for each tensor that an operator is about to save; null: the operator keeps the tensor.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
};

// Error if another library's engine has replaced the one of this file.
void require_saved_tensor_engine();

// While it lives, sets the policy of this thread's operators in place of the previous one; null: no
// policy.
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
