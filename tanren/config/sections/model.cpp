#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/kinds.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, UnfreezeOptions& o) {
  add("parameters", &o.parameters,
      "Patterns of parameters that model.freeze matches (* any text, ? one character).");
  add("step", &o.step,
      "Applied updates before these parameters are trained; their optimizer state begins then. 0: "
      "trained from the start, as an exception from model.freeze.");
}

namespace {

void fields_of_pix2pixhd(FieldList& add, ModelOptions& o) {
  add("generator_channels", &o.generator_channels,
      "pix2pixhd: channels of the generator's first convolution (ngf); with size local, of the "
      "outermost enhancer's.");
  add("num_downsamplings", &o.num_downsamplings,
      "pix2pixhd: how often the global generator halves the picture (n_downsample_global).");
  add("num_blocks", &o.num_blocks,
      "pix2pixhd: residual blocks of the global generator (n_blocks_global).");
  add("num_enhancers", &o.num_enhancers,
      "pix2pixhd, size local: enhancers around the global generator, each of twice the resolution "
      "(n_local_enhancers).");
  add("enhancer_blocks", &o.enhancer_blocks,
      "pix2pixhd, size local: residual blocks of an enhancer (n_blocks_local).");
  add("discriminators", &o.discriminators,
      "pix2pixhd: PatchGAN discriminators, each at half the resolution of the one before (num_D); "
      "0: none, and the objective generator alone, with l1 at weight 1.");
  add("discriminator_channels", &o.discriminator_channels,
      "pix2pixhd: channels of a discriminator's first convolution (ndf).");
  add("discriminator_layers", &o.discriminator_layers,
      "pix2pixhd: strided convolutions of a discriminator (n_layers_D).");
  add("perceptual", &o.perceptual, Identity::by_name,
      "pix2pixhd: torchvision's weights of vgg19 (.pth, .safetensors), for the generator's term "
      "perceptual; read at each start, relative to the config file. Empty: no such term.",
      TextKind::file);
}

}  // namespace

void fields(FieldList& add, ModelOptions& o) {
  add("kind", &o.kind,
      "mlp, convnet, gpt2, bert, lstm, resnet, vgg, pix2pixhd, torchscript, package, or a name "
      "that the program registered.");
  add("path", &o.path, Identity::by_name,
      "torchscript: file that torch.jit.save wrote; package: folder that tanren_export.py wrote. "
      "Read at each start, relative to the config file. It is a program: load only what you trust.",
      TextKind::file);
  add("hidden", &o.hidden, "mlp: widths of the hidden layers, each ≥ 1; [] is a linear model.");
  add("channels", &o.channels,
      "convnet: channels per stage, each ≥ 1; each stage halves the image.");
  add("norm", &o.norm, "convnet: group, batch, none. batch couples the samples of a microbatch.");
  add("activation", &o.activation,
      "relu, gelu, gelu_tanh (approximated), tanh, silu. Empty: relu; bert: gelu.");
  add("dropout", &o.dropout,
      "Probability of every dropout of the model, in [0, 1); counter-based, so the same for any "
      "split. Unset: 0.1 for gpt2 and bert, 0.5 for vgg, else 0. resnet has none.");
  add("outputs", &o.outputs,
      "Classes or regressed values; pix2pixhd: channels of the pictures that it makes. 0: as many "
      "as "
      "the data has.");
  add("loss", &o.loss, "cross_entropy, bce, mse, l1.");
  add("label_smoothing", &o.label_smoothing,
      "cross_entropy: share of the target spread evenly, in [0, 1).");
  add("loss_chunk", &o.loss_chunk,
      "gpt2, lstm, bert for masked_lm: tokens whose scores are computed, and held, at once in "
      "training and evaluation. 0: as many as make 32 million scores, at least 512. A number above "
      "the tokens of a microbatch computes all scores at once.");
  add("size", &o.size,
      "Preset of a known model, the first if empty. gpt2: gpt2, distilgpt2, gpt2-medium, "
      "gpt2-large, gpt2-xl. bert: bert-base-uncased, bert-base-cased, "
      "bert-base-multilingual-cased, bert-base-chinese, bert-large-uncased, bert-large-cased, "
      "bert-tiny, bert-mini, bert-small, bert-medium. resnet: resnet18, 34, 50, 101, 152. vgg: "
      "vgg11, 13, 16, 19 and vgg11_bn, … with batch norm. pix2pixhd: global, or local (with the "
      "enhancer of twice the resolution).");
  add("num_layers", &o.num_layers, "gpt2, bert: blocks; lstm: layers. 0: the preset's; lstm: 1.");
  add("num_heads", &o.num_heads,
      "gpt2, bert: attention heads, which divide hidden_size; 0: the preset's.");
  add("hidden_size", &o.hidden_size,
      "gpt2, bert: width of a token's vector; lstm: width of its state. 0: the preset's, for lstm "
      "256.");
  add("intermediate_size", &o.intermediate_size,
      "gpt2, bert: width inside a block's MLP; 0: 4 times hidden_size.");
  add("context_length", &o.context_length,
      "gpt2, bert: positions, the longest sequence it can see; 0: the preset's.");
  add("vocab_size", &o.vocab_size,
      "gpt2, bert, lstm: size of the vocabulary, at least that of the data; 0: the data's, or for "
      "bert that of the preset in model.size.");
  add("embedding_dropout", &o.embedding_dropout,
      "gpt2, bert, lstm: dropout after the embeddings, in [0, 1); unset: model.dropout.");
  add("attention_dropout", &o.attention_dropout,
      "gpt2, bert: dropout of attention weights, in [0, 1); unset: model.dropout.");
  add("fused_attention_dropout", &o.fused_attention_dropout,
      "gpt2: apply attention_dropout in torch's fused kernel: faster on a GPU and without T × T "
      "weights, but the random numbers then depend on microbatches, ranks and retries.");
  add("residual_dropout", &o.residual_dropout,
      "gpt2, bert: dropout of what attention and MLP add, in [0, 1); unset: model.dropout.");
  add("layer_norm_eps", &o.layer_norm_eps,
      "gpt2, bert: added to a layer norm's variance, > 0; unset: 1e-5, for bert 1e-12.");
  add("initializer_range", &o.initializer_range,
      "Standard deviation of the initial weights (gpt2, bert) or of the initial embedding (lstm), "
      "> 0; unset: 0.02, for lstm 1.");
  add("task", &o.task,
      "bert: classify (BertForSequenceClassification), masked_lm (BertForMaskedLM); lstm, "
      "torchscript: classify, next_token; gpt2: next_token, classify "
      "(GPT2ForSequenceClassification). Empty: classify; gpt2: next_token.");
  add("token_types", &o.token_types, "bert: kinds of token, of sentence A and B; 0: 2.");
  add("pad_token", &o.pad_token,
      "bert, lstm: id of the padding token; its embedding starts at 0 and gets no gradient. -1: "
      "none. Unset: 0 for bert, none for lstm.");
  add("classifier_dropout", &o.classifier_dropout,
      "bert, lstm: dropout before the classifier, in [0, 1); unset: model.dropout.");
  add("embedding_size", &o.embedding_size, "lstm: width of a token's vector; 0: hidden_size.");
  add("bidirectional", &o.bidirectional,
      "lstm: reads from the end to the start, too; not for task next_token.");
  fields_of_pix2pixhd(add, o);
  add("memory_format", &o.memory_format, Identity::free,
      "convnet, resnet, vgg, pix2pixhd and registered kinds: memory layout of images and "
      "convolution weights: channels_last (NHWC), contiguous (NCHW), auto (the faster one here). "
      "Files are NCHW either way.");
  add("append_head", &o.append_head,
      "Outputs of a linear layer `appended` that is added after the model's outputs; the model "
      "itself keeps model.outputs (0: 1000 for resnet and vgg, or what from_hf has). Not for "
      "models that predict tokens. 0: no such layer.");
  add("init_from", &o.init_from, Identity::by_name,
      "Start from these weights: a file (safetensors, its index, .pt, .bin), a checkpoint, a run "
      "folder, or for pix2pixhd a folder with latest_net_G.pth; relative to the config file.",
      TextKind::file);
  add("from_hf", &o.from_hf, Identity::by_name,
      "Start from a trained model and take its kind and sizes: a folder of Hugging Face's "
      "save_pretrained (bert, gpt2), a name in the caches of Hugging Face and torch.hub "
      "(bert-base-uncased, owner/name, resnet50), or a .pt file of torch.save(model) of their "
      "classes; relative to the config file. Keys given in [model] override its config.json.",
      TextKind::file_or_name);
  add("init_skip", &o.init_skip,
      "Patterns of tensors not taken from init_from or from_hf. The model's are newly initialised, "
      "the file's are ignored.");
  add("init_rename", &o.init_rename, "Renames of the file's tensors, each \"old=new\".");
  add("freeze", &o.freeze,
      "Patterns of parameters that are not trained; a module whose parameters are all frozen keeps "
      "its batch-norm statistics and applies no dropout.");
  add("unfreeze", &o.unfreeze,
      "Tables [[model.unfreeze]], each with frozen parameters and the step from which they are "
      "trained; if several match a parameter, the earliest step counts.");
  add("options", &o.options, "Table of options for a registered kind, handed on as text.");
}

namespace {

// Keys that some kinds read and others do not.
const Keys kKindKeys = {"path",
                        "hidden",
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
                        "fused_attention_dropout",
                        "residual_dropout",
                        "layer_norm_eps",
                        "initializer_range",
                        "task",
                        "token_types",
                        "pad_token",
                        "classifier_dropout",
                        "embedding_size",
                        "bidirectional",
                        "generator_channels",
                        "num_downsamplings",
                        "num_blocks",
                        "num_enhancers",
                        "enhancer_blocks",
                        "discriminators",
                        "discriminator_channels",
                        "discriminator_layers",
                        "perceptual",
                        "memory_format",
                        "append_head",
                        "loss_chunk",
                        "options"};

// A task that predicts tokens has no classes and no loss to choose.
void check_task(Problems& p, const ModelOptions& o, const ModelKind& kind) {
  if (!o.task.empty()) p.one_of("model.task", o.task, kind.tasks);
  const std::string task = task_of(o);
  if (task != kind.tasks.back()) {
    p.unused("model.", {"loss_chunk"}, "model.task", kind.tasks.front());
    return;
  }
  p.unused("model.", kind.no_use_to_tokens, "model.task", task);
}

void check_pix2pixhd(Problems& p, const ModelOptions& o) {
  if (o.size.empty() || o.size == "global") {
    p.unused("model.", {"num_enhancers", "enhancer_blocks"}, "model.size", "global");
  }
  if (o.discriminators == 0) {
    p.unused("model.", {"discriminator_channels", "discriminator_layers"}, "model.discriminators",
             "0");
  }
}

// A registered kind may read any key, so only the library's kinds are checked.
void check_kind_keys(Problems& p, const ModelOptions& o) {
  const ModelKind* kind = model_kind(o.kind);
  if (kind == nullptr) return;
  Keys others;
  for (const auto& key : kKindKeys) {
    if (!reads(*kind, key)) others.push_back(key);
  }
  p.unused("model.", others, "model.kind", o.kind);
  if (!kind->tasks.empty()) check_task(p, o, *kind);
  if (reads(*kind, "discriminators")) check_pix2pixhd(p, o);
  if (!kind->sizes.empty() && !o.size.empty()) p.one_of("model.size", o.size, kind->sizes);
  const Keys generate = {"prompt", "tokens",    "temperature",    "top_k",     "top_p",
                         "seed",   "num_beams", "length_penalty", "stop_token"};
  if (!kind->generates) {
    p.unused("generate.", generate, "model.kind", o.kind);
  } else if (task_of(o) == "classify") {
    p.unused("generate.", generate, "model.task", "classify");
  }
}

// Whether the sizes fit together is checked where the preset fills in missing sizes.
void check_transformer(Problems& p, const ModelOptions& o) {
  p.within("model.num_layers", o.num_layers, 0, 4096, true);
  p.within("model.num_heads", o.num_heads, 0, 4096, true);
  const auto width = [&](const char* key, int64_t value) {
    p.within(key, value, 0, kAbsurdWidth, false);
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
  if (o.pad_token) p.within("model.pad_token", *o.pad_token, -1, kAbsurdWidth, false);
  if (o.layer_norm_eps) p.positive("model.layer_norm_eps", *o.layer_norm_eps);
  if (o.initializer_range) p.positive("model.initializer_range", *o.initializer_range);
}

// Channels double at each halving, so that a few halvings make any number of channels absurd.
void check_generator(Problems& p, const ModelOptions& o) {
  p.within("model.generator_channels", o.generator_channels, 1, 65536, true);
  p.within("model.num_downsamplings", o.num_downsamplings, 0, 10, true);
  p.within("model.num_blocks", o.num_blocks, 0, 4096, true);
  p.within("model.num_enhancers", o.num_enhancers, 1, 8, true);
  p.within("model.enhancer_blocks", o.enhancer_blocks, 0, 4096, true);
  p.within("model.discriminators", o.discriminators, 0, 16, true);
  p.within("model.discriminator_channels", o.discriminator_channels, 1, 65536, true);
  p.within("model.discriminator_layers", o.discriminator_layers, 1, 16, true);
}

}  // namespace

void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known) {
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
  check_generator(p, o);
  p.within("model.label_smoothing", o.label_smoothing, 0, 1, false);
  p.check(o.label_smoothing == 0 || o.loss == "cross_entropy",
          "model.label_smoothing needs model.loss = \"cross_entropy\", not \"" + o.loss + "\"");
  p.count("model.loss_chunk", o.loss_chunk, 0);
  p.within("model.outputs", o.outputs, 0, kAbsurdWidth, false);
  p.within("model.append_head", o.append_head, 0, kAbsurdWidth, false);
  p.check(o.unfreeze.empty() || !o.freeze.empty(),
          "model.unfreeze has no meaning without model.freeze; add that or drop it");
  for (size_t i = 0; i < o.unfreeze.size(); ++i) {
    const std::string name = fmt::format("model.unfreeze[{}]", i);
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
    p.unused("model.",
             {"size", "hidden", "channels", "norm", "embedding_size", "bidirectional", "options"},
             "model.from_hf", o.from_hf);
  }
  check_kind_keys(p, o);
}

}  // namespace tanren
