// OperatorRecord: reports a kernel that torch's dispatcher does not see to the listeners in
// anatomy/, guard/ and parallel/. With parallel.zero, its constructor waits in parallel/ for
// weights that are still on their way. Without a listener it costs a look at two flags.
// Thread-safe. Made by ops/ and by user kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <vector>

namespace tanren {

class OperatorRecord {
 public:
  // `touched`: the tensors, or lists of them, that the kernel reads and writes, if they exist
  // already; undefined ones are left out. `name` must be a literal: "tanren::gelu".
  template <class... Tensors>
  explicit OperatorRecord(const char* name, const Tensors&... touched)
      : record_(at::RecordScope::FUNCTION) {
    if (!record_.isActive()) return;
    (add(touched), ...);
    record_.before(name, &inputs_);
  }

  // A result that the kernel itself allocated.
  void made(const at::Tensor& result) {
    if (record_.isActive() && record_.needsOutputs()) {
      record_.setOutputs(std::vector<c10::IValue>{result});
    }
  }

 private:
  void add(const at::Tensor& tensor) {
    if (tensor.defined()) inputs_.emplace_back(tensor);
  }
  void add(at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) add(tensor);
  }

  std::vector<c10::IValue> inputs_;  // kept as long as a listener may look at them
  at::RecordFunction record_;
};

}  // namespace tanren
