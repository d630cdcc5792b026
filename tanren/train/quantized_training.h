// Quantisation-aware training (config [quantize]): what a run does beside fake_quantization.h. Its
// weights are found before the plan is made; before step 1 of a run without a checkpoint, batch
// norms are folded and inputs measured. Later starts have both from the checkpoint. Called by run's
// preparation.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/plan/plan.h"
#include "tanren/quantize/fake_quantization.h"

namespace tanren {

// Of the config's scheme, on the first two samples. Runs dry. ConfigError as
// find_fake_quantization, and for a model whose forward needs values.
FakeQuantization find_quantization(const Task& task, const QuantizeOptions& options,
                                   const Dataset& train);

// "8-bit layers | 52 weights | 2 embedding, 50 linear; …": what is rounded, and what stays.
PlanLine quantization_line(const FakeQuantization& how);

// Folds batch norms into convolutions and, if the scheme is static, sets the scales of inputs from
// plan.quantize.samples of the training data, evenly spread over it: the same ones for any number
// of ranks. `plain` is the task as it was before fake_quantized gave its module the scales, on the
// CPU in fp32. Runs on the threads of all ranks of this process. Draws nothing. Errors as
// fold_batch_norms and Calibration.
void begin_quantized(const Task& plain, const FakeQuantization& how, const Plan& plan,
                     const Dataset& train);

}  // namespace tanren
