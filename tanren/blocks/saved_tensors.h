// Decides what operators do with the tensors that they save for backward. By default they keep
// them; a policy of this thread may store each tensor in another way (recompute.h, offload.h).
// libtorch asks the process's engine for this, so all policies share the engine of this file. It is
// there when the program starts: the first backward makes threads for every device, which no later
// engine can use. libtorch_python installs an engine of its own; recompute and offload then fail.
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
