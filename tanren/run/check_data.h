// Whether the classes of the training data are all there, and the evaluation data fit what the model is
// built for, which the training data say. Checked when the data are open and before anything starts: an
// evaluation may come hours later.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/plan/plan.h"
#include "tanren/train/build.h"

#include <optional>

namespace tanren {

// ConfigError where [data.eval] has another input shape (token data: a longer one, or ids past the
// vocabulary), another kind of label, or classes that the model has no output for, or where a model
// that guesses tokens meets training data of a kind that labels texts.
// `begins`: the model is still to be made, so that its sizes may be set; and DataError where labels alone
// say how many classes there are, and some of these have no sample.
void check_datasets(const Datasets& datasets, const ModelOptions& model, const DataOptions& data,
                    bool begins);

// A line of the plan: how many classes there are, with their names and samples, counted here. None where
// labels are no classes of samples.
std::optional<PlanLine> classes_line(const Dataset& train);
// Puts a line into the plan behind that of the model.
void add_beside_model(Plan& plan, const PlanLine& line);

}  // namespace tanren
