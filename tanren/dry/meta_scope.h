// MetaScope: a dry run. Inside it, on this thread, a large tensor has a shape and no memory, and an
// operator on such tensors computes shapes only, so a model of any size is built and run instantly.
// Small tensors (up to kRealBytes) are real and hold values; an operator that also gets a tensor
// without memory uses their shapes alone. An observer is called for every operator that the program
// calls. At most one scope per process. Called by model/layer_table.
#pragma once

#include "tanren/base/error.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// One operator as the program called it. The operators that it calls itself are not reported.
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

class MetaScope {
 public:
  using Observer = std::function<void(const OperatorCall&)>;
  // Tensors up to this size are made as usual.
  static constexpr int64_t kRealBytes = 1 << 16;

  // `observer` is called after each operator, on this thread; it must not call operators itself.
  explicit MetaScope(Observer observer = {});
  ~MetaScope();
  MetaScope(const MetaScope&) = delete;
  MetaScope& operator=(const MetaScope&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A tensor of this shape and dtype without memory.
at::Tensor meta_tensor(at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace tanren
