// DryObserver: is called for each operator of a dry run (dry_scope.h). ForwardWork (forward_work.h)
// counts multiply-adds and sizes; LayerCalls (model/layer_calls.h) finds what each layer does.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace tanren {

// An operator that the program calls, or that such an operator calls in turn.
struct DryCall {
  const c10::OperatorHandle& op;
  const torch::jit::Stack& stack;
  bool on_dry;  // one of its arguments is a tensor without memory

  // Valid until it runs.
  c10::ArrayRef<c10::IValue> arguments() const {
    return torch::jit::last(stack, op.schema().arguments().size());
  }
  // Valid after it ran.
  c10::ArrayRef<c10::IValue> results() const {
    return torch::jit::last(stack, op.schema().returns().size());
  }
};

class DryObserver {
 public:
  virtual ~DryObserver() = default;
  // Called in place of each operator; run() runs it. Calls no operators itself.
  virtual void around(const DryCall& call, c10::function_ref<void()> run) = 0;
  // Called for a forward that torch's operators do not show (note_dry_forward).
  virtual void forward_noted(int64_t /*multiply_adds*/, int64_t /*gradients*/) {}
};

}  // namespace tanren
