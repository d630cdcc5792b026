// Writes a model's answer for each sample of an evaluation into one table: row (the number of the
// sample in its source), the sample's name if it has one, target, then the columns of AnswerTable.
// Called by evaluate_checkpoint and evaluate_whole_model.
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/parallel/ranks.h"
#include "tanren/run/answer_table.h"
#include "tanren/run/run.h"
#include "tanren/train/evaluate.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

class PredictionsWriter {
 public:
  // ConfigError on all ranks if the file is there and is not to be replaced, is a folder, cannot be
  // written where it is to lie, has another ending, or if the task has no single answer for a
  // sample; also if it belongs to one of `models` (files and folders) or to the config's data.
  // `dataset` must outlive the writer.
  PredictionsWriter(PredictionsTo to, const std::vector<std::filesystem::path>& models,
                    const RunConfig& config, const Dataset& dataset, const Task& task,
                    const DataInfo& info, const Ranks& ranks);

  // Keeps the rows of a piece of the samples; they are a few bytes each. A sample whose outputs are
  // NaN is a row with nulls with predict.broken "skip", else RunError names it.
  void add(const Batch& samples, const Prediction& prediction);
  // Writes the rows of all ranks, in the order of the samples. The file is whole or absent; returns
  // why it is absent, or nothing. Every rank calls it.
  std::string write();

 private:
  void make_table(AnswerForm form);

  PredictionsTo to_;
  const Dataset& dataset_;
  const Ranks& ranks_;
  std::unique_ptr<AnswerTable> table_;  // null: nothing is written
  std::unique_ptr<Answers> answers_;
  DataInfo info_;
  TableFormat format_ = TableFormat::csv;
  AnswerForm form_;
  bool has_names_ = false, all_scores_ = false, skips_ = false;
  std::string rows_;
};

// Both see each prediction.
SeePrediction see_both(SeePrediction see, PredictionsWriter& writer);

}  // namespace tanren
