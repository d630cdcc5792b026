// The layers of LeNet-5 (two convolutions with pooling, three linear layers) for small images of
// any number of channels. Named in a config by model.kind = "lenet".
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"

// The task of [model]: model.loss, model.outputs and model.activation work as for tanren's own
// kinds. Throws ConfigError unless the data are images of at least 8 × 8.
tanren::Task make_lenet(const tanren::ModelOptions& options, const tanren::DataInfo& info);
