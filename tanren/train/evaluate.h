// Evaluation: each sample exactly once, without gradients, in eval mode; the loss is the sum of the
// terms over all samples divided by their counts, so neither the batch size nor the number of ranks can
// change it. Ranks share the samples and all return the same.
#pragma once

#include "tanren/base/report.h"
#include "tanren/data/dataset.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <optional>
#include <string>

namespace tanren {

// Module modes and the generator are as before when it returns. Where the plan says so, of the
// averaged weights; the raw ones are back bitwise when it returns or throws. `samples` = 0 if the
// dataset is empty. A stop request does not cut it short.
// A term whose count is 0 is left out of the loss, which the log tells unless `told` is the same text;
// `told` becomes it. NothingToEvaluate, a DataError, on every rank where that leaves no term.
EvaluationReport evaluate(const RunState& run, const Parts& parts, const Dataset& dataset,
                          std::string* told = nullptr);

// The same, but a stop request on any rank breaks it off on all: then no value. Draws and
// changes of predict stay until Untouched puts them back.
std::optional<EvaluationReport> evaluate_unless_stopped(const RunState& run, const Parts& parts,
                                                        const Dataset& dataset,
                                                        std::string* told = nullptr);

// ConfigError where the task predicts nothing.
void check_predicts(const Task& task);

// Evaluates this rank's first batch, of which nothing is told and no trace is left: what is wrong with
// predict, its outputs or the data shows before the first step and not behind the last. No exchange.
void rehearse_evaluation(const RunState& run, const Parts& parts, const Dataset& dataset);

}  // namespace tanren
