#include "tanren/run/check_data.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace tanren {

namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const auto size : shape) text += (text.size() > 1 ? ", " : "") + to_text(size);
  return text + "]";
}

// Columns are read in their order, so a column with another name in the same place is another
// input.
void check_features(const DataInfo& train, const DataInfo& eval) {
  const auto &ours = train.feature_names, &theirs = eval.feature_names;
  if (ours.empty() || theirs.empty() || ours.size() != theirs.size()) return;
  const auto [a, b] = std::mismatch(ours.begin(), ours.end(), theirs.begin());
  if (a == ours.end()) return;
  throw ConfigError("[data] feature column " + to_text(a - ours.begin() + 1) +
                    " of data.eval is \"" + *b + "\", of data.train \"" + *a +
                    "\"; give both files the same columns in the same order");
}

// How to give the inputs of `theirs` the shape of training's; it depends on the kind of the data.
std::string way_to_shape(const std::string& kind, const std::vector<int64_t>& ours,
                         const std::vector<int64_t>& theirs) {
  const auto elements = [](const std::vector<int64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  };
  if ((kind == "images" || kind == "pairs") && ours.size() == 3) {
    return fmt::format("set data.eval.size = {} and data.eval.channels = {}",
                       shape_text({ours[1], ours[2]}), to_text(ours[0]));
  }
  const DatasetKind* row = dataset_kind(kind);
  const bool has_context = row != nullptr && row->has_context;
  if (has_context && ours.size() == 1)
    return fmt::format("set data.eval.context = {}", to_text(ours[0]));
  const bool fits = kind == "csv" && elements(ours) == elements(theirs);
  return fits ? "set data.eval.shape = " + shape_text(ours) : "fix data.eval's file";
}

void check_inputs(const DataInfo& train, const DataInfo& eval, int64_t model_tokens,
                  const std::string& kind, bool begins) {
  const bool tokens = train.vocab_size > 0;
  if (eval.vocab_size > std::max(train.vocab_size, model_tokens) ||
      (eval.vocab_size > 0) != tokens) {
    throw ConfigError(
        fmt::format("[data] data.eval has a vocabulary of {}, data.train one of {}; give both the "
                    "same kind and vocabulary{}",
                    to_text(eval.vocab_size), to_text(train.vocab_size),
                    begins ? ", or set model.vocab_size" : ""));
  }
  const auto& ours = train.input_shape;
  const auto& theirs = eval.input_shape;
  const bool alike =
      std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                 [](int64_t a, int64_t b) { return a == b || a == kAnySize || b == kAnySize; });
  const bool shorter = tokens && ours.size() == 1 && theirs.size() == 1 && theirs[0] <= ours[0];
  if (!alike && !shorter) {
    throw ConfigError(
        fmt::format("[data] inputs of data.eval are {}, those of data.train, for which the model "
                    "is built, {}; {}",
                    shape_text(theirs), shape_text(ours), way_to_shape(kind, ours, theirs)));
  }
}

// A label for a whole text is no label for its tokens.
void check_task(const ModelOptions& model, const std::string& train_kind) {
  if (!guesses_tokens(model) || train_kind != "text_table") return;
  throw ConfigError("[data] text_table has a label a text, and this " + model.kind +
                    " guesses tokens; set model.task = \"classify\"");
}

// A single label that is far too large would give a model with as many outputs. If the config gives
// the number of classes, it is intended.
void check_classes(const Dataset& train, const ModelOptions& model, const SourceOptions& source) {
  const DatasetKind* kind = dataset_kind(source.kind);
  const bool is_counted = kind != nullptr && kind->counts_classes;
  const bool is_given = source.classes > 0 || !source.class_names.empty() ||
                        !source.only_classes.empty() || model.outputs > 0 || model.append_head > 0;
  if (!is_counted || is_given) return;
  const std::vector<int64_t> counts = train.class_counts();
  const auto empty = std::count(counts.begin(), counts.end(), 0);
  if (empty == 0) return;
  const auto first = std::find(counts.begin(), counts.end(), 0) - counts.begin();
  const std::string classes = to_text(static_cast<int64_t>(counts.size()));
  throw DataError(fmt::format(
      "[data.train] {}: the largest label is {}, and {} of these {} classes have no sample (the "
      "first of them: {}); fix the labels, or set data.train.classes = {} if so many are meant",
      source.path, to_text(static_cast<int64_t>(counts.size()) - 1), to_text(int64_t{empty}),
      classes, to_text(int64_t{first}), classes));
}

}  // namespace

std::optional<PlanLine> classes_line(const Dataset& train) {
  const DataInfo info = train.info();
  const std::vector<int64_t> counts = train.class_counts();
  const bool is_token = info.vocab_size > 0 && info.outputs == info.vocab_size && counts.empty();
  if (!info.class_labels || info.outputs <= 0 || is_token) return std::nullopt;
  std::string reason = info.class_names.empty() ? "numbered from 0" : "from 0: ";
  reason += join(info.class_names);
  if (!counts.empty()) {
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    reason += fmt::format("; samples of one: {}{}", to_text(*least),
                          *least == *most ? "" : fmt::format(" to {}", to_text(*most)));
  }
  return PlanLine{"classes", to_text(info.outputs), Source::planned, reason};
}

void add_beside_model(Plan& plan, const PlanLine& line) {
  const auto model = std::find_if(plan.lines.begin(), plan.lines.end(),
                                  [](const PlanLine& other) { return other.key == "model"; });
  plan.lines.insert(model == plan.lines.end() ? model : model + 1, line);
}

void check_datasets(const Datasets& datasets, const ModelOptions& model, const DataOptions& data,
                    bool begins) {
  check_task(model, data.train.kind);
  if (begins) check_classes(*datasets.train, model, data.train);
  if (!datasets.eval) return;
  const DataInfo train = datasets.train->info(), eval = datasets.eval->info();
  check_inputs(train, eval, model.vocab_size, data.eval.kind, begins);
  check_features(train, eval);
  if (train.class_labels != eval.class_labels) {
    const auto kind = [](bool classes) { return classes ? "classes" : "values"; };
    throw ConfigError(std::string("[data] labels of data.eval are ") + kind(eval.class_labels) +
                      ", those of data.train " + kind(train.class_labels) +
                      "; give both the same data.*.label_type");
  }
  const int64_t known =
      std::max(train.outputs, model.append_head > 0 ? model.append_head : model.outputs);
  if (eval.class_labels && eval.outputs > known) {
    const std::string what =
        fmt::format("[data] data.eval has {} classes, ", to_text(eval.outputs));
    if (!begins) {  // the number of its outputs is fixed
      throw ConfigError(
          fmt::format("{}and the model has {} outputs; fix its labels, or leave out the samples "
                      "of further classes",
                      what, to_text(known)));
    }
    throw ConfigError(
        fmt::format("{}data.train has {}; fix its labels, or set data.train.classes or "
                    "model.outputs to all that there are",
                    what, to_text(train.outputs)));
  }
  if (!eval.class_labels && eval.outputs != train.outputs) {
    throw ConfigError(fmt::format(
        "[data] data.eval has {} values per sample, data.train has {}; give both the same labels",
        to_text(eval.outputs), to_text(train.outputs)));
  }
}

}  // namespace tanren
