// FakeLayers: the weights of a module that fake_quantization.h found, with the scales of their
// inputs. FakeScope: within it the operators of its thread that read such a weight are answered by
// the same operators on rounded numbers. Both passes of a recomputed block are. One of these
// operators in another form than the layer's throws an Error that names the weight; any other
// operator reads it as it is, which find_fake_quantization has excluded. Internal to quantize/.
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

// Thread-safe, but for make_norms_still. Scales, zero points and weights may change between scopes.
class FakeLayers {
 public:
  // Takes the scales where the module has them registered.
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

// Of one sample of `batch`: elements of the inputs of each of `readers` in the forward of the phase
// that reads most, by the weight's name. A dry run.
std::map<std::string, int64_t> input_elements(const Task& task, const WeightReaders& readers,
                                              const Batch& batch);

// A learned scale as it is used: an update may have taken it below 0.
at::Tensor above_zero(const at::Tensor& scale);

}  // namespace tanren
