// Evaluation: takes each sample exactly once, without gradients, in eval mode. The loss is the
// weighted sum (TermWeights) of the terms over all samples divided by their counts, so neither the
// batch size nor the number of ranks can change it. Ranks share the samples, and all return the
// same.
#pragma once

#include "tanren/base/report.h"
#include "tanren/data/dataset.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <functional>
#include <optional>
#include <string>

namespace tanren {

// Gets the samples and their prediction, on the rank that made it. For code that stores outputs.
using SeePrediction = std::function<void(const Batch& samples, const Prediction& prediction)>;

// Evaluates the averaged weights if the plan says so; the raw weights are back bitwise when it
// returns or throws. Module modes and the generator are as before when it returns. `samples` is 0
// if the dataset is empty. A stop request does not cut it short.
// A term whose count is 0 is left out of the loss. The log reports this unless `told` already has
// the same text; `told` is then set to that text. If no term is left, every rank throws
// NothingToEvaluate, a DataError. `see`, if not empty, gets each piece of the samples with its
// prediction.
EvaluationReport evaluate(const RunState& run, const Parts& parts, const Dataset& dataset,
                          std::string* told = nullptr, const SeePrediction& see = {});

// The same, but a stop request on any rank ends the evaluation on all ranks, and the result is
// empty. The caller must restore the generators and buffers that predict changed (Undo).
std::optional<EvaluationReport> evaluate_unless_stopped(const RunState& run, const Parts& parts,
                                                        const Dataset& dataset,
                                                        std::string* told = nullptr);

// Throws ConfigError if the task has neither predict nor predict_rows.
void check_predicts(const Task& task);

// Evaluates this rank's first batch without reporting anything or changing the run, so that errors
// in predict, its outputs or the data show before the first step and not after the last. Ranks do
// not communicate, except stages, which send the outputs of their blocks to the next stage.
void rehearse_evaluation(const RunState& run, const Parts& parts, const Dataset& dataset);

}  // namespace tanren
