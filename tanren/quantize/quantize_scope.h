// QuantizedLayers: the 8-bit weights of a module, ready for its operators. Its constructor replaces
// the module's own weights (replaced.h). QuantizeScope: within it, this thread's linear, addmm,
// matmul, conv2d and embedding that read such a weight are computed by 8-bit operators
// (ops/quantized_linear.h, …), in the dtype that the replaced operator would return. The results
// have no gradient. If one of these operators reads the weight in a form that weight_read.h does
// not know, it throws an Error that names the parameter. Any other operator reads NaN. Used by
// quantized_task.
//
// The input of a linear layer is quantised with the parameter's input scale, or row by row without
// one, or stays floating. If it stays floating, each call expands the weight, some channels at a
// time. A convolution without an input scale expands its whole weight at each call. A convolution
// with one has the stride and padding of its first call; a call with others throws an Error. A
// weight that linears read also serves embeddings, from the same bytes.
#pragma once

#include "tanren/base/operator_listener.h"
#include "tanren/quantize/quantized_parameters.h"
#include "tanren/quantize/replaced.h"

#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Thread-safe once it is made.
class QuantizedLayers {
 public:
  // Replaces the module's parameters, each as soon as its 8-bit weight is packed. InputError,
  // before anything is replaced, for a name that is no parameter, another shape, a dtype that is
  // neither fp32 nor bf16, another device than the CPU, an input scale that no operator could use,
  // two names of a parameter with different readers, or numbers that were freed before. RunError if
  // a later weight fails, for example for lack of memory, after some were replaced: the numbers of
  // these are lost.
  QuantizedLayers(const torch::nn::Module& module, QuantizedParameters parameters,
                  ReplacedNumbers numbers = ReplacedNumbers::there);
  ~QuantizedLayers();
  QuantizedLayers(const QuantizedLayers&) = delete;
  QuantizedLayers& operator=(const QuantizedLayers&) = delete;

  // How many operator calls each weight has computed so far, by the parameter's name.
  std::map<std::string, int64_t> answers() const;

 private:
  friend class QuantizeScope;
  struct Layer;
  class Answering;

  std::vector<std::unique_ptr<Layer>> layers_;
};

class QuantizeScope {
 public:
  // Inside a scope of other layers, those compute the operators whose weights `layers` do not have.
  // Throws an Error if both have 8-bit weights of the same parameter.
  explicit QuantizeScope(std::shared_ptr<const QuantizedLayers> layers);

 private:
  OperatorListenerScope heard_;
};

}  // namespace tanren
