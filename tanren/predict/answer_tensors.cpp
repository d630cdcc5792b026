#include "tanren/predict/answer_tensors.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/formats/safetensors.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>

#include <cmath>
#include <cstring>
#include <utility>

namespace tanren {

namespace {

template <typename T>
void append_value(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
void take_value(const char*& from, T& value) {
  std::memcpy(&value, from, sizeof value);
  from += sizeof value;
}

}  // namespace

AnswerTensors::AnswerTensors(AnswerForm form, DataInfo info, bool all_scores)
    : form_(form),
      info_(std::move(info)),
      classes_(form.kind == AnswerKind::classes),
      all_scores_(all_scores) {
  if (form.kind != AnswerKind::tokens) return;
  throw ConfigError(
      "[predict] a safetensors file has a row for each sample, and this model has an answer for "
      "each token; write to a .csv or .jsonl file");
}

size_t AnswerTensors::record_bytes() const {
  return (classes_ ? sizeof(int64_t) + sizeof(float) : 0) +
         static_cast<size_t>(width()) * sizeof(float);
}

void AnswerTensors::add(std::string& bytes, const Answer* answer) const {
  if (classes_) {
    append_value(bytes, answer != nullptr ? answer->label : int64_t{-1});
    append_value(bytes, answer != nullptr ? answer->score : NAN);
  }
  for (int64_t i = 0; i < width(); ++i) {
    const auto index = static_cast<size_t>(i);
    const bool has_value = answer != nullptr && index < answer->scores.size();
    append_value(bytes, has_value ? answer->scores[index] : NAN);
  }
}

void AnswerTensors::write(const std::filesystem::path& from,
                          const std::filesystem::path& to) const {
  const std::string bytes = read_file(from);
  if (bytes.size() % record_bytes() != 0) {
    throw RunError(fmt::format(
        "[predict] {} has {} bytes, which are no whole answers of {}; begin again with --force",
        from.string(), bytes.size(), record_bytes()));
  }
  const auto rows = static_cast<int64_t>(bytes.size() / record_bytes());
  const at::Tensor labels = at::empty({rows}, at::kLong), best = at::empty({rows}, at::kFloat);
  const at::Tensor all = at::empty({rows, width()}, at::kFloat);
  auto* label = labels.mutable_data_ptr<int64_t>();
  auto* score = best.mutable_data_ptr<float>();
  auto* value = all.mutable_data_ptr<float>();
  const char* at = bytes.data();
  for (int64_t row = 0; row < rows; ++row) {
    if (classes_) {
      take_value(at, *label++);
      take_value(at, *score++);
    }
    for (int64_t i = 0; i < width(); ++i) take_value(at, *value++);
  }
  TensorMap tensors;
  if (classes_) {
    tensors.set("label", labels);
    tensors.set("score", best);
    if (all_scores_) tensors.set("scores", all);
  } else {
    tensors.set("values", all);
  }
  Metadata metadata;
  if (!info_.class_names.empty()) {
    metadata["class_names"] = json_text(nlohmann::json(info_.class_names));
  }
  write_safetensors(to, tensors, metadata);
}

}  // namespace tanren
