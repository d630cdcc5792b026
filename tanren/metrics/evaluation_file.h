// Per-class results of an evaluation: evaluation.json of the run folder, and the confusion matrix
// as text. Called by run; the TensorBoard sink and the command line use the texts.
#pragma once

#include "tanren/base/report.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Names of class 0, 1, …; empty if the classes have no names. Ignored if their number is not that
// of the classes.
using ClassNames = std::vector<std::string>;

// One JSON object: step, samples, values, auroc_error, classes (one object each, a line each) and
// confusion_matrix (a row a line: row = target, column = prediction). Values that were not measured
// are left out; non-finite ones are null.
std::string evaluation_json(const EvaluationReport& report, const ClassNames& names = {});

// The confusion matrix as a markdown table, rows targets, columns predictions; above 50 classes one
// sentence instead. Empty if it was not asked for.
std::string confusion_markdown(const EvaluationReport& report, const ClassNames& names = {});

// Targets, predictions and scores of each class as a markdown table; above 50 classes one sentence
// instead. Empty if the report has no classes.
std::string classes_markdown(const EvaluationReport& report, const ClassNames& names = {});

// Writes evaluation_json of each evaluation that has classes, atomically replacing the one before.
// An existing file from a step after `step` is removed, because the run went back to before it. A
// failed write is logged once; the run continues.
std::unique_ptr<Sink> make_evaluation_file_sink(const std::filesystem::path& file, int64_t step,
                                                const ClassNames& names = {});

}  // namespace tanren
