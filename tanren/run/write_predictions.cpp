#include "tanren/run/write_predictions.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/run/kept_files.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <unistd.h>

#include <utility>

namespace tanren {

namespace {

constexpr const char* kWhat = "eval";

// What the evaluation reads.
std::vector<KeptFile> kept_files(const std::vector<std::filesystem::path>& models,
                                 const DataOptions& data) {
  std::vector<KeptFile> kept;
  for (const auto& model : models) {
    for (auto& file : files_of_model(model)) kept.push_back(std::move(file));
  }
  add_data(data, "is read by this evaluation", kept);
  return kept;
}

// What is wrong with the file that predictions go to, in one line; empty: nothing.
std::string problem_of_file(const PredictionsTo& to, const std::vector<KeptFile>& kept) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string name = "[eval] --predictions " + to.file.string();
  if (fs::is_directory(to.file, error)) return name + " is a folder; name a file";
  if (const std::string what = kept_as(to.file, kept); !what.empty()) {
    return name + " " + what + "; name another file";
  }
  if (!to.replaces && fs::exists(to.file, error)) {
    return name + " is there; name another file, or replace it with --force";
  }
  const fs::path folder = to.file.has_parent_path() ? to.file.parent_path() : fs::path(".");
  if (::access(folder.c_str(), W_OK | X_OK) == 0 && fs::is_directory(folder, error)) return "";
  return name + " cannot be written: " +
         (fs::is_directory(folder, error) ? "its folder is not writable"
                                          : "there is no folder " + folder.string()) +
         "; name a file elsewhere";
}

// The targets as cells: a class's name or number, a value, or a list of values.
std::vector<Cell> target_cells(const at::Tensor& targets, int64_t samples, const DataInfo& info) {
  std::vector<Cell> cells;
  if (!targets.defined()) return std::vector<Cell>(static_cast<size_t>(samples), {"null", true});
  const bool labels = info.class_labels && targets.numel() == samples;
  const at::Tensor host =
      host_copies({targets.to(labels ? at::kLong : at::kFloat).contiguous()}).front();
  if (labels) {
    const auto* label = host.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < samples; ++i) {
      const bool has_name = label[i] >= 0 && label[i] < std::ssize(info.class_names);
      cells.push_back(label[i] < 0 ? Cell{"null", true}
                                   : Cell{class_text(info, label[i]), !has_name});
    }
    return cells;
  }
  const auto* value = host.const_data_ptr<float>();
  const int64_t width = samples > 0 ? host.numel() / samples : 0;
  for (int64_t i = 0; i < samples; ++i, value += width) {
    const std::string values = fmt::format("{}", fmt::join(value, value + width, ","));
    cells.push_back({width == 1 ? values : "[" + values + "]", true});
  }
  return cells;
}

}  // namespace

PredictionsWriter::PredictionsWriter(PredictionsTo to,
                                     const std::vector<std::filesystem::path>& models,
                                     const RunConfig& config, const Dataset& dataset,
                                     const Task& task, const DataInfo& info, const Ranks& ranks)
    : to_(std::move(to)), dataset_(dataset), ranks_(ranks), info_(info) {
  if (to_.file.empty()) return;
  format_ = table_format(to_.file, kWhat);
  if (format_ == TableFormat::tensors) {
    throw ConfigError("[eval] --predictions writes a table; end the name of " + to_.file.string() +
                      " in .csv or .jsonl");
  }
  form_ = answer_form(task, config.model, info, kWhat);
  if (form_.kind == AnswerKind::tokens) {
    throw ConfigError(
        "[eval] --predictions has a row a sample, and this model has an answer for each token; "
        "write them with tanren predict");
  }
  std::string problem;
  try {
    if (ranks.world().is_first()) problem = problem_of_file(to_, kept_files(models, config.data));
  } catch (const InputError& error) {
    problem = error.what();
  }
  problem = gather_texts(ranks.world().communicator(), problem).front();
  if (!problem.empty()) throw ConfigError(problem);
  has_names_ = !dataset.sample_name(0).empty();
  skips_ = config.predict.broken == "skip";
  all_scores_ = config.predict.scores == "all";
  answers_ = std::make_unique<Answers>(form_, kWhat);
  make_table(form_);
}

void PredictionsWriter::make_table(AnswerForm form) {
  std::vector<std::string> own{"row"};
  if (has_names_) own.emplace_back("name");
  own.emplace_back("target");
  table_ = std::make_unique<AnswerTable>(format_, own, form, info_, all_scores_);
}

void PredictionsWriter::add(const Batch& samples, const Prediction& prediction) {
  if (table_ == nullptr) return;
  answers_->add(prediction);
  const auto answers = answers_->take(samples.size());
  if (form_.width == 0 && !answers.empty()) {  // a kind that did not say how many outputs it has
    form_.width = std::ssize(answers.front().scores);
    make_table(form_);
  }
  const auto targets = target_cells(prediction.targets, samples.size(), info_);
  const auto* id = samples.ids.const_data_ptr<int64_t>();
  for (size_t i = 0; i < answers.size(); ++i) {
    const int64_t row = dataset_.source_row(id[i]);
    if (answers[i].has_nan && !skips_) {
      throw RunError(fmt::format("[eval] --predictions: row {}: {}", row, kNanOutputs));
    }
    std::vector<Cell> own{{to_text(row), true}};
    if (has_names_) own.push_back({dataset_.sample_name(id[i]), false});
    own.push_back(targets[i]);
    table_->add(rows_, own, answers[i].has_nan ? nullptr : &answers[i]);
  }
}

std::string PredictionsWriter::write() {
  if (table_ == nullptr) return "";
  const RankAxis& world = ranks_.world();
  std::vector<std::string> all{rows_};
  if (!world.alone()) all = gather_texts(world.communicator(), rows_);
  if (!world.is_first()) return "";
  const std::string header = table_->header();
  std::vector<std::string_view> pieces{header};
  for (const auto& rows : all) pieces.emplace_back(rows);
  try {
    write_file(to_.file, pieces);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

SeePrediction see_both(SeePrediction see, PredictionsWriter& writer) {
  return [see = std::move(see), &writer](const Batch& samples, const Prediction& prediction) {
    if (see) see(samples, prediction);
    writer.add(samples, prediction);
  };
}

}  // namespace tanren
