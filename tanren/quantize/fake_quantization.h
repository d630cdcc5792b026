// Fake quantisation of a task, for training that feels the rounding of its 8-bit model
// (ops/fake_quantize.h). FakeQuantization lists the weights and the scheme. fake_quantized wraps
// the task from outside, as quantized_task.h does: within its forwards, the operators that read
// such a weight run on rounded weights and inputs, which have a gradient. The 8-bit model of
// quantized_task.h therefore computes what an evaluation during the training computed, up to the
// rounding of sums. Called by run's preparation.
//
// Scales of weights follow from the weights. static: each linear layer and each convolution gets
// the scale of its input as a parameter, fp32 [1], and its zero point as a buffer, int64 [1], in
// the module of its weight (quantized_names.h). dynamic: each input row has its own scale, computed
// from the row.
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
  std::string name;  // the weight's name in the task
  WeightReader reader = WeightReader::linear;
  // Elements per sample that the layers of this weight read in a forward. They scale the gradient
  // of the input's scale, so the number depends on model and data only, never on a microbatch.
  int64_t input_elements = 1;
  // The first name of a tied weight, which also names the scale; else `name`.
  std::string first;
  std::optional<bool> trains_scale = {};  // trained from the start; none: as the weight
};

struct FakeQuantization {
  QuantizeScheme scheme = QuantizeScheme::none;
  std::vector<FakeLayer> layers;            // in the module's order
  std::map<std::string, std::string> kept;  // weights of two dims and more that stay → why
  int64_t num_norms = 0;                    // batch norms of the module

  WeightReaders readers() const;
};

// Finds the weights by dry runs on samples shaped as those of `batch` (find_readers over
// predictions and training). A weight stays floating if a training's forward reads it in another
// form than a prediction; `kept` gives the reason. With static, a tied weight that linears read
// only in training also stays. Throws a ConfigError if no weight is left or if a pattern of `keep`
// matches nothing, and an Error if a forward needs values.
FakeQuantization find_fake_quantization(const Task& task, const Batch& batch, QuantizeScheme scheme,
                                        const std::vector<std::string>& keep);

// Registers the scales (1) and zero points (128) of inputs and adds their names to the task
// (input_scales). Each scale is trained as its layer says. Wraps the task's forwards, predict,
// predict_rows with its parts, and generate. Batch norms are in eval mode, even if the module is
// put into training mode later. Layers whose weight the module does not have are left out. Throws a
// ConfigError if the module already has a tensor of such a name. Do not wrap a task twice.
Task fake_quantized(Task task, const FakeQuantization& how);

// Sets the scales and zero points of a module that fake_quantized has prepared.
void set_input_scales(const torch::nn::Module& module, const FakeQuantization& how,
                      const InputScales& scales);

// The 8-bit weights of a training's tensors, with the scales of inputs that it learned. Weights
// that are fp64 become fp32 first. InputError as quantize_weight, and for a scale that is not
// finite.
QuantizedParameters learned_parameters(const TensorMap& tensors, const FakeQuantization& how);

// The names of the scales and zero points that fake_quantized registers.
std::set<std::string> input_scale_names(const FakeQuantization& how);

// The same, found in the tensors of a static training without its FakeQuantization: the scale and
// zero point beside each matrix that no pattern of `keep` matches, if they have the shapes and
// dtypes that fake_quantized gives them.
std::set<std::string> input_scale_names(const TensorMap& tensors,
                                        const std::vector<std::string>& keep = {});

// `tensors` without `names`. Without input_scale_names(), these are the tensors of the plain model.
TensorMap without_names(const TensorMap& tensors, const std::set<std::string>& names);

}  // namespace tanren
