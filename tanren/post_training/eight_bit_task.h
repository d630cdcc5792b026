// EightBitTask: a task with 8-bit weights beside the same task without: the module's own weights
// are put aside and come back, so that several schemes can be measured on one module. Not
// thread-safe; one Scope at a time. Called by what measures schemes.
#pragma once

#include "tanren/base/task.h"
#include "tanren/quantize/quantized_parameters.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tanren {

class EightBitTask {
 public:
  // The module keeps its weights, and each whether it is trained. Errors as quantized()
  // (quantize/quantized_task.h).
  EightBitTask(const Task& task, const QuantizedParameters& parameters);

  // The task that answers with the 8-bit weights; to be called within a Scope.
  const Task& task() const { return eight_bit_; }

  // Within it the module has NaN in the place of its 8-bit parameters, as a file's has.
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
