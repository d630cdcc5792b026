// Fake quantisation of a task, for training that feels the rounding of its 8-bit model
// (ops/fake_quantize.h). FakeQuantization says of which weights and how; fake_quantized wraps the
// task, from outside as quantized_task.h does: within its forwards the operators that read such a
// weight are answered by the same operators on rounded weights and inputs, which have a gradient.
// So the 8-bit model of quantized_task.h computes what an evaluation of the training computed, up
// to the rounding of sums. Called by run's preparation.
//
// Scales of weights follow from the weights. static: each linear layer and each convolution gets
// the scale of its input as a parameter, fp32 [1], and its zero point as a buffer, int64 [1], in
// the module of its weight (quantized_names.h). dynamic: a scale per row, from the row.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"
#include "tanren/base/tensor_map.h"
#include "tanren/plan/plan.h"
#include "tanren/quantize/calibration.h"
#include "tanren/quantize/quantized_parameters.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren {

struct FakeLayer {
  std::string name;  // of the weight in the task
  WeightReader reader = WeightReader::linear;
  // Of one sample, that the layers of this weight read in a forward. It scales the gradient of the
  // input's scale, so it is a fact of model and data, never of a microbatch.
  int64_t input_elements = 1;
  // Of a tied weight the first of its names, after which the scale is named; else `name`.
  std::string first;
  std::optional<bool> trains_scale = {};  // from the start on; none: as its weight
};

struct FakeQuantization {
  QuantizeScheme scheme = QuantizeScheme::none;
  std::vector<FakeLayer> layers;            // in the module's order
  std::map<std::string, std::string> kept;  // weights of two dims and more that stay → why
  int64_t num_norms = 0;                    // batch norms of the module

  WeightReaders readers() const;
};

// Finds the weights by dry runs on samples shaped as those of `batch`, as readers.h over both
// forwards: a weight that the training's reads in another form than a prediction stays, and `kept`
// says so. With static so does a tied weight that linears read in training alone. Throws a
// ConfigError if there are none, or for a pattern of `keep` without a match, and an Error if a
// forward needs values.
FakeQuantization find_fake_quantization(const Task& task, const Batch& batch, QuantizeScheme scheme,
                                        const std::vector<std::string>& keep);

// Registers the scales, 1 around 128, each trained as the layer says, names them in the task
// (input_scales), and wraps forwards, predict, predict_rows with its parts, and generate. Batch
// norms are in eval mode, also where the module is put into training mode later. Layers whose
// weight the module does not have are left out. ConfigError for a name that the module has already.
// The task is not wrapped twice.
Task fake_quantized(Task task, const FakeQuantization& how);

// Sets the scales and zero points of a module that fake_quantized has seen.
void set_input_scales(const torch::nn::Module& module, const FakeQuantization& how,
                      const InputScales& scales);

// The 8-bit weights of a training's tensors, with the scales of inputs that it learned. Weights
// that are fp64 become fp32 first. InputError as quantize_weight, and for a scale that is not
// finite.
QuantizedParameters learned_parameters(const TensorMap& tensors, const FakeQuantization& how);

// The names of the scales and zero points that fake_quantized registers.
std::set<std::string> input_scale_names(const FakeQuantization& how);

// The same of the tensors of a static training that does not name them: what lies beside a matrix
// that no pattern of `keep` matches, in the shapes and dtypes that fake_quantized gives.
std::set<std::string> input_scale_names(const TensorMap& tensors,
                                        const std::vector<std::string>& keep = {});

// With input_scale_names: the tensors of the plain model.
TensorMap without_names(const TensorMap& tensors, const std::set<std::string>& names);

}  // namespace tanren
