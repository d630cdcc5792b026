// Checks that the training data have all their classes, and that the evaluation data fit the model,
// which is built for the training data. Runs when the data are open and before anything else
// starts, because an evaluation may come hours later.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/plan/plan.h"
#include "tanren/train/build.h"

#include <optional>

namespace tanren {

// ConfigError if [data.eval] has another input shape (token data: a longer one, or ids past the
// vocabulary), another kind of label, or classes that the model has no output for. ConfigError also
// if a model that predicts tokens gets training data that label texts. `begins`: the model does not
// exist yet. The errors then advise to set its sizes, and there is a DataError if only the labels
// give the number of classes and some class has no sample.
void check_datasets(const Datasets& datasets, const ModelOptions& model, const DataOptions& data,
                    bool begins);

// A line of the plan: the number of classes, with their names and samples, counted here. None if
// the labels are not classes of samples.
std::optional<PlanLine> classes_line(const Dataset& train);
// Inserts a line into the plan after the model's.
void add_beside_model(Plan& plan, const PlanLine& line);

}  // namespace tanren
