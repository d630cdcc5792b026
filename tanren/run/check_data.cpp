#include "tanren/run/check_data.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <algorithm>

namespace tanren {

namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const auto size : shape) text += (text.size() > 1 ? ", " : "") + to_text(size);
  return text + "]";
}

// Columns are taken in their order, so the same number under another name is another input.
void check_features(const DataInfo& train, const DataInfo& eval) {
  const auto &ours = train.feature_names, &theirs = eval.feature_names;
  if (ours.empty() || theirs.empty() || ours.size() != theirs.size()) return;
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), theirs.begin());
  if (a == ours.end()) return;
  throw ConfigError("[data] feature column " + to_text(a - ours.begin() + 1) +
                    " of data.eval is \"" + *b + "\", of data.train \"" + *a +
                    "\"; give both files the same columns in the same order");
}

void check_inputs(const DataInfo& train, const DataInfo& eval, int64_t model_tokens) {
  const bool tokens = train.vocab_size > 0;
  if (eval.vocab_size > std::max(train.vocab_size, model_tokens) ||
      (eval.vocab_size > 0) != tokens) {
    throw ConfigError("[data] data.eval has a vocabulary of " + to_text(eval.vocab_size) +
                      ", data.train one of " + to_text(train.vocab_size) +
                      "; give both the same kind and vocabulary, or set model.vocab_size");
  }
  const auto& ours = train.input_shape;
  const auto& theirs = eval.input_shape;
  const bool alike =
      std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                 [](int64_t a, int64_t b) { return a == b || a == kAnySize || b == kAnySize; });
  const bool shorter = tokens && ours.size() == 1 && theirs.size() == 1 && theirs[0] <= ours[0];
  if (!alike && !shorter) {
    throw ConfigError("[data] inputs of data.eval are " + shape_text(theirs) +
                      ", those of data.train, for which the model is built, " + shape_text(ours) +
                      "; mend data.eval's file, or set data.eval.shape = " + shape_text(ours));
  }
}

// A label for a whole text is none for its tokens.
void check_task(const ModelOptions& model, const std::string& train_kind) {
  const bool guesses = (model.kind == "gpt2" && model.task != "classify") ||
                       model.task == "next_token" || model.task == "masked_lm";
  if (!guesses || train_kind != "text_table") return;
  throw ConfigError("[data] text_table has a label a text, and this " + model.kind +
                    " guesses tokens; set model.task = \"classify\"");
}

}  // namespace

void check_datasets(const Datasets& datasets, const ModelOptions& model,
                    const std::string& train_kind) {
  check_task(model, train_kind);
  if (!datasets.eval) return;
  const DataInfo train = datasets.train->info(), eval = datasets.eval->info();
  check_inputs(train, eval, model.vocab_size);
  check_features(train, eval);
  if (train.class_labels != eval.class_labels) {
    const auto kind = [](bool classes) { return classes ? "classes" : "values"; };
    throw ConfigError(std::string("[data] labels of data.eval are ") + kind(eval.class_labels) +
                      ", those of data.train " + kind(train.class_labels) +
                      "; give both the same data.*.label_type");
  }
  const int64_t known =
      std::max(train.outputs, model.append_head > 0 ? model.append_head : model.outputs);
  if (eval.class_labels ? eval.outputs > known : eval.outputs != train.outputs) {
    const char* what = eval.class_labels ? " classes" : " values per sample";
    throw ConfigError("[data] data.eval has " + to_text(eval.outputs) + what + ", data.train has " +
                      to_text(train.outputs) +
                      (eval.class_labels
                           ? "; mend its labels, or set data.train.classes or model.outputs to all "
                             "that there are"
                           : "; give both the same labels"));
  }
}

}  // namespace tanren
