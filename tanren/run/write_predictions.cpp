#include "tanren/run/write_predictions.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"

#include <ATen/ATen.h>

#include <utility>

namespace tanren {

namespace {

constexpr const char* kWhat = "eval";

// What is wrong with the file that predictions go to, in one line; empty: nothing.
std::string problem_of_file(const PredictionsTo& to) {
  std::error_code error;
  if (!std::filesystem::exists(to.file, error) || to.replaces) return "";
  return "[eval] --predictions " + to.file.string() +
         " is there; name another file, or replace it with --force";
}

// The targets as cells: a class's name or number, a value, or a list of values.
std::vector<Cell> target_cells(const at::Tensor& targets, int64_t samples, const DataInfo& info) {
  std::vector<Cell> cells;
  const at::Tensor host = host_copies({targets}).front().reshape({samples, -1});
  for (int64_t i = 0; i < samples; ++i) {
    const at::Tensor row = host[i];
    if (info.class_labels && row.numel() == 1) {
      const auto label = row.item<int64_t>();
      const bool has_name = label >= 0 && label < std::ssize(info.class_names);
      cells.push_back(label < 0 ? Cell{"null", true} : Cell{class_text(info, label), !has_name});
      continue;
    }
    std::string values;
    for (int64_t j = 0; j < row.numel(); ++j) {
      values += (j > 0 ? "," : "") + fmt::format("{}", row[j].item<float>());
    }
    cells.push_back({row.numel() == 1 ? values : "[" + values + "]", true});
  }
  return cells;
}

}  // namespace

PredictionsWriter::PredictionsWriter(PredictionsTo to, const RunConfig& config,
                                     const Dataset& dataset, const Task& task, const DataInfo& info,
                                     const DataParallel& ranks)
    : to_(std::move(to)), dataset_(dataset), ranks_(ranks), info_(info) {
  if (to_.file.empty()) return;
  const TableFormat format = table_format(to_.file, kWhat);
  const AnswerForm form = answer_form(task, config.model, info, kWhat);
  if (form.kind == AnswerKind::tokens) {
    throw ConfigError(
        "[eval] --predictions has a row a sample, and this model has an answer for each token; "
        "write them with tanren predict");
  }
  std::string problem = ranks.is_first() ? problem_of_file(to_) : "";
  if (!ranks.alone()) problem = gather_texts(ranks.communicator(), problem).front();
  if (!problem.empty()) throw ConfigError(problem);
  has_names_ = !dataset.sample_name(0).empty();
  std::vector<std::string> own{"row"};
  if (has_names_) own.emplace_back("name");
  own.emplace_back("target");
  table_ = std::make_unique<AnswerTable>(format, own, form, info, config.predict.scores == "all");
  answers_ = std::make_unique<Answers>(form, kWhat);
}

void PredictionsWriter::add(const Batch& samples, const Prediction& prediction) {
  if (table_ == nullptr) return;
  answers_->add(prediction);
  const auto answers = answers_->take(samples.size());
  const auto targets = target_cells(prediction.targets, samples.size(), info_);
  const auto* id = samples.ids.const_data_ptr<int64_t>();
  for (size_t i = 0; i < answers.size(); ++i) {
    std::vector<Cell> own{{to_text(id[i]), true}};
    if (has_names_) own.push_back({dataset_.sample_name(id[i]), false});
    own.push_back(targets[i]);
    table_->add(rows_, own, &answers[i]);
  }
}

void PredictionsWriter::write() {
  if (table_ == nullptr) return;
  std::vector<std::string> all{rows_};
  if (!ranks_.alone()) all = gather_texts(ranks_.communicator(), rows_);
  if (!ranks_.is_first()) return;
  const std::string header = table_->header();
  std::vector<std::string_view> pieces{header};
  for (const auto& rows : all) pieces.emplace_back(rows);
  write_file(to_.file, pieces);
}

SeePrediction see_both(SeePrediction see, PredictionsWriter& writer) {
  return [see = std::move(see), &writer](const Batch& samples, const Prediction& prediction) {
    if (see) see(samples, prediction);
    writer.add(samples, prediction);
  };
}

}  // namespace tanren
