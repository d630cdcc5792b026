#include "tanren/config/problems.h"

#include "tanren/base/names.h"
#include "tanren/config/kinds.h"

namespace tanren {

namespace {

// Keys that some kinds read and others do not.
const Keys kKindKeys = {"hidden",
                        "channels",
                        "norm",
                        "activation",
                        "dropout",
                        "outputs",
                        "loss",
                        "size",
                        "num_layers",
                        "num_heads",
                        "hidden_size",
                        "intermediate_size",
                        "context_length",
                        "vocab_size",
                        "embedding_dropout",
                        "attention_dropout",
                        "residual_dropout",
                        "layer_norm_eps",
                        "initializer_range",
                        "task",
                        "token_types",
                        "pad_token",
                        "classifier_dropout",
                        "embedding_size",
                        "bidirectional",
                        "memory_format",
                        "append_head",
                        "loss_chunk",
                        "options"};

// A task that predicts tokens has no classes and no loss to choose.
void check_task(Problems& p, const ModelOptions& o, const ModelKind& kind,
                const std::set<std::string>& changed) {
  if (!o.task.empty()) p.one_of("model.task", o.task, kind.tasks);
  const std::string task = task_of(o);
  if (task != kind.tasks.back()) {
    p.unused(changed, "model.", {"loss_chunk"}, "model.task", kind.tasks.front());
    return;
  }
  p.unused(changed, "model.", kind.no_use_to_tokens, "model.task", task);
}

// A registered kind may read any key, so only the library's kinds are checked.
void check_kind_keys(Problems& p, const ModelOptions& o, const std::set<std::string>& changed) {
  const ModelKind* kind = model_kind(o.kind);
  if (kind == nullptr) return;
  Keys others;
  for (const auto& key : kKindKeys) {
    if (!reads(*kind, key)) others.push_back(key);
  }
  p.unused(changed, "model.", others, "model.kind", o.kind);
  if (!kind->tasks.empty()) check_task(p, o, *kind, changed);
  if (!kind->sizes.empty() && !o.size.empty()) p.one_of("model.size", o.size, kind->sizes);
  const Keys generate = {"prompt", "tokens",    "temperature",    "top_k",     "top_p",
                         "seed",   "num_beams", "length_penalty", "stop_token"};
  if (!kind->generates) {
    p.unused(changed, "generate.", generate, "model.kind", o.kind);
  } else if (task_of(o) == "classify") {
    p.unused(changed, "generate.", generate, "model.task", "classify");
  }
}

// Whether the sizes fit together is checked where the preset fills in missing sizes.
void check_transformer(Problems& p, const ModelOptions& o) {
  p.within("model.num_layers", static_cast<double>(o.num_layers), 0, 4096, true);
  p.within("model.num_heads", static_cast<double>(o.num_heads), 0, 4096, true);
  const auto width = [&](const char* key, int64_t value) {
    p.within(key, static_cast<double>(value), 0, kAbsurdWidth, false);
  };
  width("model.hidden_size", o.hidden_size);
  width("model.intermediate_size", o.intermediate_size);
  width("model.context_length", o.context_length);
  width("model.vocab_size", o.vocab_size);
  const auto probability = [&](const char* key, const std::optional<double>& value) {
    if (value) p.within(key, *value, 0, 1, false);
  };
  probability("model.dropout", o.dropout);
  probability("model.embedding_dropout", o.embedding_dropout);
  probability("model.attention_dropout", o.attention_dropout);
  probability("model.residual_dropout", o.residual_dropout);
  probability("model.classifier_dropout", o.classifier_dropout);
  width("model.token_types", o.token_types);
  width("model.embedding_size", o.embedding_size);
  if (o.pad_token)
    p.within("model.pad_token", static_cast<double>(*o.pad_token), -1, kAbsurdWidth, false);
  if (o.layer_norm_eps) p.positive("model.layer_norm_eps", *o.layer_norm_eps);
  if (o.initializer_range) p.positive("model.initializer_range", *o.initializer_range);
}

}  // namespace

void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known,
                 const std::set<std::string>& changed) {
  if (o.kind.empty()) {
    p.check(!o.from_hf.empty(), "model.kind is missing; one of " + join(known));
  } else {
    p.one_of("model.kind", o.kind, known);
  }
  const ModelKind* kind = model_kind(o.kind);
  p.sizes("model.hidden", o.hidden);
  p.sizes("model.channels", o.channels);
  p.check(kind == nullptr || kind->widths != "channels" || !o.channels.empty(),
          "model.channels is empty; a convnet needs a stage");
  p.one_of("model.norm", o.norm, {"group", "batch", "none"});
  if (!o.activation.empty()) {
    p.one_of("model.activation", o.activation, {"relu", "gelu", "gelu_tanh", "tanh", "silu"});
  }
  p.one_of("model.memory_format", o.memory_format, {"auto", "channels_last", "contiguous"});
  p.one_of("model.loss", o.loss, loss_kinds());
  check_transformer(p, o);
  p.within("model.label_smoothing", o.label_smoothing, 0, 1, false);
  p.check(o.label_smoothing == 0 || o.loss == "cross_entropy",
          "model.label_smoothing needs model.loss = \"cross_entropy\", not \"" + o.loss + "\"");
  p.count("model.loss_chunk", o.loss_chunk, 0);
  p.within("model.outputs", static_cast<double>(o.outputs), 0, kAbsurdWidth, false);
  p.within("model.append_head", static_cast<double>(o.append_head), 0, kAbsurdWidth, false);
  p.check(o.unfreeze.empty() || !o.freeze.empty(),
          "model.unfreeze has no meaning without model.freeze; add that or drop it");
  for (size_t i = 0; i < o.unfreeze.size(); ++i) {
    const std::string name = "model.unfreeze[" + std::to_string(i) + "]";
    p.check(!o.unfreeze[i].parameters.empty(), name + " has no parameters; give it patterns");
    p.check(o.unfreeze[i].step.has_value(), name + " has no step; say from which one on");
    p.count(name + ".step", o.unfreeze[i].step.value_or(0), 0);
  }
  for (const auto& rename : o.init_rename) {
    const auto equals = rename.find('=');
    p.check(equals != std::string::npos && equals > 0,
            "model.init_rename has \"" + rename + "\"; write \"old=new\"");
  }
  p.check(
      !o.init_from.empty() || !o.from_hf.empty() || (o.init_skip.empty() && o.init_rename.empty()),
      "model.init_skip and model.init_rename have no meaning without model.init_from; drop them");
  if (!o.from_hf.empty()) {
    p.check(o.init_from.empty(),
            "model.init_from and model.from_hf both give the weights; drop one");
    p.unused(changed, "model.",
             {"size", "hidden", "channels", "norm", "embedding_size", "bidirectional", "options"},
             "model.from_hf", o.from_hf);
  }
  check_kind_keys(p, o, changed);
}

}  // namespace tanren
