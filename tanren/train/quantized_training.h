// Quantisation-aware training (config [quantize]): what a run does beside fake_quantization.h. Its
// weights are found before the plan is made; before step 1 of a run without a checkpoint, batch
// norms are folded and inputs measured. Later starts have both from the checkpoint. Called by run's
// preparation.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/plan/plan.h"
#include "tanren/quantize/fake_quantization.h"

#include <optional>
#include <set>
#include <string>

namespace tanren {

// Finds the quantization for the config's scheme by a dry run on the first two samples. Scales are
// trained unless model.freeze freezes them without their weights (freezing.h). Throws ConfigError
// like find_fake_quantization, and for a model whose forward needs values.
FakeQuantization find_quantization(const Task& task, const RunConfig& config, const Dataset& train);

// The scales (and zero points) that are frozen and unfrozen with their weights.
std::set<std::string> led_scales(const FakeQuantization& how);

// Says in `profile`, which has the parameters of a wrapped task, which weight each scale follows.
void note_scales(const FakeQuantization& how, ModelProfile& profile);

// The plan's line about what is rounded and what stays: "quantize.weights", "52 of 54", "read by 2
// embedding, 50 linear; …".
PlanLine quantization_line(const FakeQuantization& how);

// A warning if an optimizer changes scales by about its learning rate, whatever their size, and no
// group gives them a lower rate (docs/quantize.md).
std::optional<PlanLine> scales_line(const FakeQuantization& how, const Plan& plan);

// Folds batch norms into convolutions and, if the scheme is static, sets the scales of inputs from
// plan.quantize.samples of the training data, evenly spread over it: the same ones for any number
// of ranks. `plain` is the task as it was before fake_quantized gave its module the scales, on the
// CPU in fp32. Runs on the threads of all ranks of this process. Draws nothing. Errors as
// fold_batch_norms and Calibration. Returns a line about the weights whose layers read only one
// constant number, if there are any.
std::optional<PlanLine> begin_quantized(const Task& plain, const FakeQuantization& how,
                                        const Plan& plan, const Dataset& train);

}  // namespace tanren
