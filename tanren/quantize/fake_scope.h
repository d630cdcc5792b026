// FakeLayers: the weights of a module that fake_quantization.h found, with the scales of their
// inputs. FakeScope: within it, this thread's operators that read such a weight run on rounded
// numbers, in both passes of a recomputed block. If one of these operators reads the weight in
// another form than the layer's, it throws an Error that names the weight. Any other operator reads
// the weight unrounded; find_fake_quantization has excluded weights with such operators. Internal
// to quantize/.
#pragma once

#include "tanren/base/operator_listener.h"
#include "tanren/quantize/fake_quantization.h"

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Thread-safe, except for make_norms_still. Scales, zero points and weights may change between
// scopes.
class FakeLayers {
 public:
  // Takes the scales that the module has registered.
  FakeLayers(const torch::nn::Module& module, const FakeQuantization& how);
  ~FakeLayers();
  FakeLayers(const FakeLayers&) = delete;
  FakeLayers& operator=(const FakeLayers&) = delete;

  void make_norms_still() const;

 private:
  friend class FakeScope;
  struct Layer;
  class Answering;

  QuantizeScheme scheme_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::shared_ptr<torch::nn::Module>> norms_;
};

class FakeScope {
 public:
  // Also puts the batch norms into eval mode.
  explicit FakeScope(const std::shared_ptr<const FakeLayers>& layers);

 private:
  OperatorListenerScope heard_;
};

// The module's batch norms, tanren's and torch's, by the names of their types.
std::vector<std::shared_ptr<torch::nn::Module>> batch_norms(const torch::nn::Module& module);

// By the weight's name, for each of `readers`: the elements per sample of the inputs that its
// layers read in one phase's forward; the largest number of all phases. A dry run on `batch`.
std::map<std::string, int64_t> input_elements(const Task& task, const WeightReaders& readers,
                                              const Batch& batch);

// The absolute value of a learned scale, at least the smallest normal fp32 number: an update may
// have taken the scale below 0.
at::Tensor above_zero(const at::Tensor& scale);

}  // namespace tanren
