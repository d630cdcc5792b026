// Whether the evaluation data fit what the model is built for, which the training data say. Checked
// when the data are open and before anything starts: an evaluation may come hours later.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/run/build.h"

namespace tanren {

// ConfigError where [data.eval] has another input shape (token data: a longer one, or ids past the
// vocabulary), another kind of label, or classes that the model has no output for, or where a model
// that guesses tokens meets training data of a kind that labels texts.
void check_datasets(const Datasets& datasets, const ModelOptions& model,
                    const std::string& train_kind);

}  // namespace tanren
