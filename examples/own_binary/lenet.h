// LeNet-5's plan (two convolutions with pooling, three linear layers) for small images of any number
// of channels. Named in a config by model.kind = "lenet".
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"

// The task of [model]: model.loss, model.outputs and model.activation mean what they mean for
// tanren's own kinds. ConfigError for data that are no images of 8 × 8 or more.
tanren::Task make_lenet(const tanren::ModelOptions& options, const tanren::DataInfo& info);
