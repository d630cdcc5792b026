#include "tanren/config/problems.h"

#include "tanren/base/names.h"

#include <algorithm>

namespace tanren {

namespace {

struct Kind {
  const char* name;
  std::vector<std::string> reads;  // of kKindKeys
  std::vector<std::string> sizes;  // presets
};

// Keys that some kinds read and others do not.
const std::vector<std::string> kKindKeys = {"hidden",
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

const std::vector<Kind> kKinds = {
    {"mlp", {"hidden", "activation", "dropout", "outputs", "loss", "append_head"}, {}},
    {"convnet",
     {"channels", "norm", "activation", "dropout", "outputs", "loss", "memory_format",
      "append_head"},
     {}},
    {"gpt2",
     {"dropout", "size", "num_layers", "num_heads", "hidden_size", "intermediate_size",
      "context_length", "vocab_size", "embedding_dropout", "attention_dropout", "residual_dropout",
      "layer_norm_eps", "initializer_range", "task", "outputs", "loss", "append_head",
      "loss_chunk"},
     {"gpt2", "distilgpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"}},
    {"bert",
     {"activation",
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
      "append_head",
      "loss_chunk"},
     {"bert-base-uncased", "bert-base-cased", "bert-base-multilingual-cased", "bert-base-chinese",
      "bert-large-uncased", "bert-large-cased", "bert-tiny", "bert-mini", "bert-small",
      "bert-medium"}},
    {"lstm",
     {"dropout", "outputs", "loss", "num_layers", "hidden_size", "vocab_size", "embedding_dropout",
      "initializer_range", "task", "pad_token", "classifier_dropout", "embedding_size",
      "bidirectional", "append_head", "loss_chunk"},
     {}},
    {"resnet",
     {"size", "outputs", "loss", "memory_format", "append_head"},
     {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"}},
    {"vgg",
     {"size", "dropout", "outputs", "loss", "memory_format", "append_head"},
     {"vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"}},
};

// A task that guesses tokens has no classes and no loss to choose.
void check_task(Problems& p, const ModelOptions& o, const std::vector<std::string>& tasks,
                const std::set<std::string>& changed) {
  if (!o.task.empty()) p.one_of("model.task", o.task, tasks);
  const std::string task = o.task.empty() && o.kind == "gpt2" ? "next_token" : o.task;
  if (task != tasks.back()) {
    p.unused(changed, "model.", {"loss_chunk"}, "model.task", tasks.front());
    return;
  }
  std::vector<std::string> others = {"outputs", "loss", "append_head"};
  if (o.kind == "bert") others.emplace_back("classifier_dropout");
  if (o.kind == "lstm") others.emplace_back("bidirectional");
  p.unused(changed, "model.", others, "model.task", task);
}

// A registered kind may read any key, so only the ones of the library are held to their own.
void check_kind_keys(Problems& p, const ModelOptions& o, const std::set<std::string>& changed) {
  for (const auto& kind : kKinds) {
    if (o.kind != kind.name) continue;
    std::vector<std::string> others;
    for (const auto& key : kKindKeys) {
      if (std::find(kind.reads.begin(), kind.reads.end(), key) == kind.reads.end()) {
        others.push_back(key);
      }
    }
    p.unused(changed, "model.", others, "model.kind", o.kind);
    if (o.kind == "bert") check_task(p, o, {"classify", "masked_lm"}, changed);
    if (o.kind == "lstm") check_task(p, o, {"classify", "next_token"}, changed);
    if (!kind.sizes.empty() && !o.size.empty()) p.one_of("model.size", o.size, kind.sizes);
    const std::vector<std::string> generate = {"prompt",    "tokens",         "temperature",
                                               "top_k",     "top_p",          "seed",
                                               "num_beams", "length_penalty", "stop_token"};
    if (o.kind == "gpt2") check_task(p, o, {"classify", "next_token"}, changed);
    const bool classifies = o.kind == "lstm" ? o.task != "next_token" : o.task == "classify";
    if ((o.kind == "lstm" || o.kind == "gpt2") && classifies) {
      p.unused(changed, "generate.", generate, "model.task", "classify");
    } else if (o.kind != "gpt2" && o.kind != "lstm") {
      p.unused(changed, "generate.", generate, "model.kind", o.kind);
    }
  }
}

// How the sizes fit together is checked where the preset fills in what is not given.
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
  p.sizes("model.hidden", o.hidden);
  p.sizes("model.channels", o.channels);
  p.check(o.kind != "convnet" || !o.channels.empty(),
          "model.channels is empty; a convnet needs a stage");
  p.one_of("model.norm", o.norm, {"group", "batch", "none"});
  if (!o.activation.empty()) {
    p.one_of("model.activation", o.activation, {"relu", "gelu", "gelu_tanh", "tanh", "silu"});
  }
  p.one_of("model.memory_format", o.memory_format, {"auto", "channels_last", "contiguous"});
  p.one_of("model.loss", o.loss, {"cross_entropy", "bce", "mse", "l1"});
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
