// LayerCalls: an observer of a dry run (dry/dry_scope.h). It reports the operators that a model
// itself calls to layer_table, with their tensors and multiply-adds, and checks whether inputs fit
// the weights. Used by layer_table.
#pragma once

#include "tanren/base/error.h"
#include "tanren/dry/dry_observer.h"

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

// One operator as the model called it. The operators that it calls itself are not reported.
struct OperatorCall {
  std::string name;                 // "conv2d": no namespace, no overload
  std::vector<at::Tensor> inputs;   // the tensors among its arguments, in their order
  std::vector<at::Tensor> outputs;  // empty until the operator has run
  int64_t multiply_adds = 0;        // of matrix products, convolutions and attention inside
};

// An operator that cannot run on its inputs. `what()` is the operator's own reason in one line.
class OperatorError : public Error {
 public:
  OperatorError(OperatorCall call, std::string expected, const std::string& reason)
      : Error(reason), call_(std::move(call)), expected_(std::move(expected)) {}
  const OperatorCall& call() const { return call_; }
  // The input shape that its weight needs, such as "[..., 256]"; empty if the error is another one.
  const std::string& expected() const { return expected_; }

 private:
  OperatorCall call_;
  std::string expected_;
};

class LayerCalls final : public DryObserver {
 public:
  // `tell` is called after each operator; it must not call operators itself.
  explicit LayerCalls(std::function<void(const OperatorCall&)> tell) : tell_(std::move(tell)) {}
  void around(const DryCall& call, c10::function_ref<void()> run) override;

 private:
  void run_counted(const DryCall& call, std::string_view name, c10::ArrayRef<c10::IValue> arguments,
                   c10::function_ref<void()> run);

  std::function<void(const OperatorCall&)> tell_;
  bool inside_ = false;        // an operator is running
  int64_t multiply_adds_ = 0;  // of the outermost operator
};

}  // namespace tanren
