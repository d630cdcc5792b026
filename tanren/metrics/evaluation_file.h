// What an evaluation says of classes, beyond single numbers: evaluation.json of the run folder, and
// the confusion matrix as text. Called by run; the texts by the TensorBoard sink and the command line.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Of class 0, 1, …; empty where classes have no names, and as good as that where it is another number of
// them.
using ClassNames = std::vector<std::string>;

// One JSON object: step, samples, values, auroc_error, classes (one object each, a line each) and
// confusion_matrix (a row a line: row = target, column = prediction). What was not measured is left
// out; what is not finite is null.
std::string evaluation_json(const EvaluationReport& report, const ClassNames& names = {});

// The confusion matrix as a markdown table, rows targets, columns predictions; above 50 classes one
// sentence instead. Empty if it was not asked for.
std::string confusion_markdown(const EvaluationReport& report, const ClassNames& names = {});

// Targets, predictions and scores of each class as a markdown table; above 50 classes one sentence
// instead. Empty if nothing was said of classes.
std::string classes_markdown(const EvaluationReport& report, const ClassNames& names = {});

// Writes evaluation_json of each evaluation that tells of classes, in place of the one before, whole
// or not at all. One that is there from a step after `step` is removed: the run went back behind it.
// What cannot be written is told to the log once; the run goes on.
std::unique_ptr<Sink> make_evaluation_file_sink(const std::filesystem::path& file, int64_t step,
                                                const ClassNames& names = {});

}  // namespace tanren
