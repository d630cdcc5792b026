// quantize: post-training quantisation of a whole model in a program of one's own. Not thread-safe.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/interop/whole_model.h"

namespace tanren {

// Gives the model 8-bit weights by options.scheme: weights, dynamic or static. Batch norms are
// folded into convolutions; options.samples of `samples`, labelled, calibrate, as far apart as they
// can be, as `tanren quantize` takes those of a run; layers go back to fp32, worst first, until
// accuracy, or the loss of a task without classes, of these samples is within options.tolerance.
// model.task then answers with the 8-bit weights, model.quantized says which they are, and
// write_whole_model(file, model) writes them.
// ConfigError for other options and for a pattern of options.keep that matches nothing; InputError
// for fewer than 8 samples, a model that has 8-bit weights already or is not fp32, one whose layers
// all stay, and inputs or weights that are not finite, with the layer's name.
void quantize(WholeModel& model, const Dataset& samples, const QuantizeOptions& options);

}  // namespace tanren
