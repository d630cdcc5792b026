// EightBitTask: the 8-bit version of a task, on the same module. The module's own weights are put
// aside and restored, so that several schemes can be measured on one module. Not thread-safe; one
// Scope at a time. Called by the code that measures schemes.
#pragma once

#include "tanren/base/task.h"
#include "tanren/quantize/quantized_parameters.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tanren {

class EightBitTask {
 public:
  // The module keeps its weights and their requires_grad. Errors as quantized()
  // (quantize/quantized_task.h).
  EightBitTask(const Task& task, const QuantizedParameters& parameters);

  // The task with the 8-bit weights. Call it only within a Scope.
  const Task& task() const { return eight_bit_; }

  // Within it, the module's 8-bit parameters are NaN, as those of a model from a file.
  class Scope {
   public:
    explicit Scope(const EightBitTask& of) : of_(of) { of_.swap(/*to_8_bit=*/true); }
    ~Scope() { of_.swap(/*to_8_bit=*/false); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const EightBitTask& of_;
  };

 private:
  struct Swapped {
    at::Tensor parameter, own, replaced;
  };
  void swap(bool to_8_bit) const;

  std::vector<Swapped> swapped_;
  Task eight_bit_;
};

}  // namespace tanren
