// QuantizedLayers: the 8-bit weights of a module, ready for its operators; made once, it replaces
// the module's own (replaced.h). QuantizeScope: within it the operators of its thread that read
// such a weight, linear, addmm, matmul, conv2d and embedding, are answered with 8-bit ones
// (ops/quantized_linear.h, …), in the dtype that the operator would have given. The answers have no
// gradient. One of these operators in another form than weight_read.h knows throws an Error that
// names the parameter; any other operator reads NaN. Used by quantized_task.
//
// Inputs of linear layers are quantised with the parameter's input scale, or without one row by
// row, or stay floating: then the weight is expanded at each call, some channels at a time, as is
// that of a convolution without an input scale. A convolution with one has the stride and padding
// of its first call; another call throws. A weight that linears read answers embeddings, too, from
// the same bytes.
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
  // two names of a parameter with different readers, or numbers that are not there. RunError if
  // memory runs out when some are replaced: their numbers are gone.
  QuantizedLayers(const torch::nn::Module& module, QuantizedParameters parameters,
                  ReplacedNumbers numbers = ReplacedNumbers::there);
  ~QuantizedLayers();
  QuantizedLayers(const QuantizedLayers&) = delete;
  QuantizedLayers& operator=(const QuantizedLayers&) = delete;

  // How many operators each weight answered so far, by the parameter's name.
  std::map<std::string, int64_t> answers() const;

 private:
  friend class QuantizeScope;
  struct Layer;
  class Answering;

  std::vector<std::unique_ptr<Layer>> layers_;
};

class QuantizeScope {
 public:
  // Within a scope of other layers, these answer for what is not of `layers`. Throws an Error if
  // both have 8-bit weights of the same parameter.
  explicit QuantizeScope(std::shared_ptr<const QuantizedLayers> layers);

 private:
  OperatorListenerScope heard_;
};

}  // namespace tanren
