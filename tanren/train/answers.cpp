#include "tanren/train/answers.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <utility>

namespace tanren {

namespace {

constexpr int64_t kIgnored = -100;  // a target without a label

at::Tensor in_fp32(const at::Tensor& outputs) { return outputs.detach().to(at::kFloat); }

// The numbers that answers give for tokens, piece by piece.
struct TokenColumns {
  std::vector<at::Tensor> label, score, log;  // log: the log-probability of the target
};

// `scores` [rows, vocabulary] may be far larger than the answers, so no second tensor of their size
// is made.
void look_at_rows(const at::Tensor& scores, const at::Tensor& targets, TokenColumns& columns) {
  constexpr int64_t kNumbers = int64_t{1} << 21;  // scores in a piece
  const int64_t most = std::max<int64_t>(kNumbers / std::max<int64_t>(scores.size(1), 1), 1);
  for (int64_t begin = 0; begin < scores.size(0); begin += most) {
    const int64_t rows = std::min(most, scores.size(0) - begin);
    const at::Tensor piece = in_fp32(scores.narrow(0, begin, rows)).contiguous();
    const at::Tensor logs = piece.log_softmax(1);
    const at::Tensor label = piece.argmax(1);
    const at::Tensor target = targets.narrow(0, begin, rows).clamp_min(0);
    columns.label.push_back(label);
    columns.score.push_back(logs.gather(1, label.unsqueeze(1)).squeeze(1));
    columns.log.push_back(logs.gather(1, target.unsqueeze(1)).squeeze(1));
  }
}

}  // namespace

AnswerForm answer_form(const Task& task, const ModelOptions& model, const DataInfo& info,
                       const std::string& what) {
  if (!info.target_shape.empty()) {
    throw ConfigError("[" + what +
                      "] the outputs of this model are pictures, and no table holds them; write "
                      "them with tanren eval MODEL DATA --out FOLDER");
  }
  if (task.predict_rows) return {AnswerKind::tokens};
  if (info.class_labels) {
    return {AnswerKind::classes, false, task.classes > 0 ? task.classes : info.outputs};
  }
  return {AnswerKind::values, model.loss == "bce", info.outputs};
}

void Answers::add(const Prediction& prediction) {
  if (!prediction.outputs.defined()) {
    throw ConfigError("[" + what_ + "] the task's predict returns no outputs; let it set them");
  }
  if (form_.kind == AnswerKind::tokens) {
    add_tokens(prediction);
  } else {
    add_samples(in_fp32(prediction.outputs));
  }
}

void Answers::add_samples(const at::Tensor& outputs) {
  const bool classes = form_.kind == AnswerKind::classes;
  if (classes && outputs.dim() != 2) {
    std::ostringstream sizes;
    sizes << outputs.sizes();
    throw ConfigError("[" + what_ + "] the model's outputs are of shape " + sizes.str() +
                      ", and a sample has one answer where they are [samples, classes]; this task "
                      "is none of those");
  }
  at::Tensor rows = outputs.dim() == 1 ? outputs.unsqueeze(1) : outputs.flatten(1);
  const bool picks = classes && rows.size(1) > 0;
  // Takes the maximum of the outputs themselves, because probabilities may round to the same
  // number.
  at::Tensor best = picks ? rows.argmax(1) : at::zeros({rows.size(0)}, at::kLong);
  if (classes) rows = rows.softmax(1);
  if (form_.sigmoid) rows = rows.sigmoid();
  const auto copies = host_copies({rows.contiguous(), best.contiguous()});
  const at::Tensor& host = copies[0];
  const auto* label = copies[1].const_data_ptr<int64_t>();
  const auto* value = host.const_data_ptr<float>();
  const int64_t width = host.size(1);
  std::vector<Answer> made;
  for (int64_t row = 0; row < host.size(0); ++row, value += width) {
    Answer answer;
    answer.scores.assign(value, value + width);
    answer.has_nan = std::any_of(value, value + width, [](float x) { return std::isnan(x); });
    if (picks && !answer.has_nan) {
      answer.label = label[row];
      answer.score = value[label[row]];
    }
    made.push_back(std::move(answer));
  }
  answers_.reserve(answers_.size() + made.size());
  std::move(made.begin(), made.end(), std::back_inserter(answers_));
}

void Answers::add_tokens(const Prediction& prediction) {
  // [n, vocabulary, T] of the whole batch, or [rows, vocabulary] of a part of it.
  const at::Tensor& scores = prediction.outputs;
  const at::Tensor targets = prediction.targets.reshape({-1}).to(at::kLong);
  TokenColumns columns;
  if (scores.dim() == 3) {
    const int64_t each = scores.size(2);
    for (int64_t i = 0; i < scores.size(0); ++i) {
      look_at_rows(scores[i].t(), targets.narrow(0, i * each, each), columns);
    }
  } else {
    look_at_rows(scores, targets, columns);
  }
  if (columns.label.empty()) return;
  const auto host =
      host_copies({at::cat(columns.score), at::cat(columns.label), at::cat(columns.log), targets});
  const auto* score = host[0].const_data_ptr<float>();
  const auto* token = host[1].const_data_ptr<int64_t>();
  const auto* log = host[2].const_data_ptr<float>();
  const auto* target = host[3].const_data_ptr<int64_t>();
  std::vector<TokenAnswer> made;
  for (int64_t i = 0; i < host[0].numel(); ++i) {
    const bool has_target = target[i] != kIgnored;
    made.push_back({has_target ? target[i] : -1, has_target ? log[i] : 0.0F, token[i], score[i]});
  }
  tokens_.insert(tokens_.end(), made.begin(), made.end());
}

std::vector<Answer> Answers::take(int64_t samples) {
  if (form_.kind == AnswerKind::tokens) {
    const auto all = static_cast<int64_t>(tokens_.size());
    const int64_t each = samples > 0 ? all / samples : 0;
    answers_.resize(static_cast<size_t>(samples));
    for (int64_t i = 0; i < samples; ++i) {
      const auto first = tokens_.begin() + i * each;
      Answer& answer = answers_[static_cast<size_t>(i)];
      answer.tokens.assign(first, first + each);
      answer.has_nan = std::any_of(first, first + each,
                                   [](const TokenAnswer& one) { return std::isnan(one.score); });
    }
    tokens_.clear();
  }
  if (static_cast<int64_t>(answers_.size()) != samples) {
    throw RunError(
        fmt::format("[{}] the task's predict gave {} outputs for {} samples; it must "
                    "give one for each",
                    what_, answers_.size(), samples));
  }
  return std::exchange(answers_, {});
}

std::string class_text(const DataInfo& info, int64_t label) {
  const auto index = static_cast<size_t>(label);
  return index < info.class_names.size() ? info.class_names[index] : to_text(label);
}

}  // namespace tanren
