#include "tanren/config/kinds.h"

namespace tanren {

namespace {

bool keeps_amsgrad(const OptimizerOptions& o) { return o.amsgrad; }
bool keeps_momentum(const OptimizerOptions& o) { return *o.momentum > 0; }
bool is_centered(const OptimizerOptions& o) { return o.centered; }

}  // namespace

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<Moment> adam = {
      {"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq", keeps_amsgrad}};
  static const std::vector<OptimizerKind> kinds = {
      {.name = "adafactor",
       .keys = {"beta2_decay", "clip_threshold", "scale_floor", "relative_step"},
       .decouples_decay = true,
       .is_factored = true,
       .whole = "rows and columns",
       .state = "variance by rows and columns (1-dim: whole)"},
      {.name = "adagrad",
       .keys = {"eps", "learning_rate_decay", "initial_accumulator"},
       .moments = {{"sum"}},
       .scalars = {"step"},
       .flops = 6,
       .eps = 1e-10},
      {.name = "adam",
       .keys = {"beta1", "beta2", "eps", "amsgrad", "init_from", "state", "fp32_state"},
       .moments = adam,
       .scalars = {"step"},
       .flops = 12},
      {.name = "adamw",
       .keys = {"beta1", "beta2", "eps", "amsgrad", "init_from", "state", "fp32_state"},
       .moments = adam,
       .scalars = {"step"},
       .flops = 12,
       .weight_decay = 0.01,
       .decouples_decay = true},
      {.name = "lion",
       .keys = {"beta1", "beta2"},
       .moments = {{"exp_avg"}},
       .flops = 8,
       .weight_decay = 0.01,
       .beta2 = 0.99,
       .decouples_decay = true},
      {.name = "muon",
       .keys = {"beta1", "beta2", "eps", "momentum", "nesterov", "newton_schulz_steps",
                "adjust_learning_rate", "adamw_parameters"},
       .moments = {{"momentum_buffer"}},
       .weight_decay = 0.1,
       .momentum = 0.95,
       .nesterov = true,
       .decouples_decay = true,
       .leaves_some_to_adamw = true,
       .whole = "matrices",
       .state = "momentum_buffer of matrices, exp_avg and exp_avg_sq of the rest"},
      {.name = "nadam",
       .keys = {"beta1", "beta2", "eps", "decoupled_weight_decay", "momentum_decay"},
       .moments = {{"exp_avg"}, {"exp_avg_sq"}},
       .scalars = {"step", "mu_product"},
       .flops = 15},
      {.name = "radam",
       .keys = {"beta1", "beta2", "eps", "decoupled_weight_decay"},
       .moments = {{"exp_avg"}, {"exp_avg_sq"}},
       .scalars = {"step"},
       .flops = 15},
      {.name = "rmsprop",
       .keys = {"eps", "alpha", "centered", "momentum"},
       .moments = {{"square_avg"}, {"momentum_buffer", keeps_momentum}, {"grad_avg", is_centered}},
       .scalars = {"step"},
       .flops = 7},
      {.name = "sgd",
       .keys = {"momentum", "dampening", "nesterov", "init_from"},
       .moments = {{"momentum_buffer", keeps_momentum}},
       .flops = 4,
       .weight_decay = 0.01},
  };
  return kinds;
}

Keys kept_moments(const OptimizerKind& kind, const OptimizerOptions& options) {
  Keys kept;
  for (const Moment& moment : kind.moments) {
    if (moment.is_kept == nullptr || moment.is_kept(options)) kept.push_back(moment.name);
  }
  return kept;
}

OptimizerOptions with_defaults(OptimizerOptions options) {
  static const OptimizerKind any;
  const OptimizerKind* found = optimizer_kind(options.kind);
  const OptimizerKind& kind = found == nullptr ? any : *found;
  options.weight_decay = options.weight_decay.value_or(kind.weight_decay);
  options.beta2 = options.beta2.value_or(kind.beta2);
  options.eps = options.eps.value_or(kind.eps);
  options.momentum = options.momentum.value_or(kind.momentum);
  options.nesterov = options.nesterov.value_or(kind.nesterov);
  return options;
}

const std::vector<ScheduleKind>& schedule_kinds() {
  static const std::vector<ScheduleKind> kinds = {
      {.name = "constant", .keys = {"warmup_steps"}},
      {.name = "cosine", .keys = {"warmup_steps", "final_fraction"}},
      {.name = "cosine_with_restarts",
       .keys = {"warmup_steps", "final_fraction", "cycles", "cycle_growth"}},
      {.name = "inverse_sqrt", .keys = {"warmup_steps", "timescale"}},
      {.name = "linear", .keys = {"warmup_steps", "final_fraction"}},
      {.name = "multi_step", .keys = {"warmup_steps", "milestones", "factor"}},
      {.name = "one_cycle",
       .keys = {"warmup_fraction", "div_factor", "final_div_factor", "shape"},
       .shapes = {"cosine", "linear"}},
      {.name = "polynomial", .keys = {"warmup_steps", "final_fraction", "power"}},
      {.name = "reduce_on_plateau",
       .keys = {"warmup_steps", "final_fraction", "factor", "metric", "mode", "patience",
                "threshold", "threshold_mode", "cooldown"},
       .reads_evaluations = true},
      {.name = "step", .keys = {"warmup_steps", "step_size", "factor"}},
      {.name = "warmup_stable_decay",
       .keys = {"warmup_steps", "final_fraction", "shape", "decay_steps"}},
  };
  return kinds;
}

const std::vector<ModelKind>& model_kinds() {
  static const std::vector<ModelKind> kinds = {
      {.name = "mlp",
       .keys = {"hidden", "activation", "dropout", "outputs", "loss", "append_head"},
       .widths = "hidden",
       .uses_weights_once = true},
      {.name = "convnet",
       .keys = {"channels", "norm", "activation", "dropout", "outputs", "loss", "memory_format",
                "append_head"},
       .widths = "channels",
       .is_convolutional = true},
      {.name = "gpt2",
       .keys = {"dropout", "size", "num_layers", "num_heads", "hidden_size", "intermediate_size",
                "context_length", "vocab_size", "embedding_dropout", "attention_dropout",
                "fused_attention_dropout", "residual_dropout", "layer_norm_eps",
                "initializer_range", "task", "outputs", "loss", "append_head", "loss_chunk"},
       .sizes = {"gpt2", "distilgpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"},
       .families = {{"gpt2-xl", "gpt2-large", "gpt2-medium", "gpt2", "distilgpt2"}},
       .tasks = {"classify", "next_token"},
       .no_use_to_tokens = {"outputs", "loss", "append_head"},
       .default_task = "next_token",
       .generates = true},
      {.name = "bert",
       .keys = {"activation",
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
       .sizes = {"bert-base-uncased", "bert-base-cased", "bert-base-multilingual-cased",
                 "bert-base-chinese", "bert-large-uncased", "bert-large-cased", "bert-tiny",
                 "bert-mini", "bert-small", "bert-medium"},
       .families = {{"bert-large-uncased", "bert-base-uncased", "bert-medium", "bert-small",
                     "bert-mini", "bert-tiny"},
                    {"bert-large-cased", "bert-base-cased", "bert-medium", "bert-small",
                     "bert-mini", "bert-tiny"}},
       .tasks = {"classify", "masked_lm"},
       .no_use_to_tokens = {"outputs", "loss", "append_head", "classifier_dropout"},
       .default_task = "classify"},
      {.name = "lstm",
       .keys = {"dropout", "outputs", "loss", "num_layers", "hidden_size", "vocab_size",
                "embedding_dropout", "initializer_range", "task", "pad_token", "classifier_dropout",
                "embedding_size", "bidirectional", "append_head", "loss_chunk"},
       .tasks = {"classify", "next_token"},
       .no_use_to_tokens = {"outputs", "loss", "append_head", "bidirectional"},
       .default_task = "classify",
       .generates = true,
       .is_recurrent = true},
      {.name = "resnet",
       .keys = {"size", "outputs", "loss", "memory_format", "append_head"},
       .sizes = {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"},
       .families = {{"resnet152", "resnet101", "resnet50", "resnet34", "resnet18"}},
       .is_convolutional = true},
      {.name = "vgg",
       .keys = {"size", "dropout", "outputs", "loss", "memory_format", "append_head"},
       .sizes = {"vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn",
                 "vgg19_bn"},
       .families = {{"vgg19", "vgg16", "vgg13", "vgg11"},
                    {"vgg19_bn", "vgg16_bn", "vgg13_bn", "vgg11_bn"}},
       .is_convolutional = true},
      {.name = "pix2pixhd",
       .keys = {"size", "outputs", "generator_channels", "num_downsamplings", "num_blocks",
                "num_enhancers", "enhancer_blocks", "discriminators", "discriminator_channels",
                "discriminator_layers", "perceptual", "memory_format"},
       .sizes = {"global", "local"},
       .is_convolutional = true,
       .has_instance_norm = true},
      {.name = "torchscript",
       .keys = {"path", "outputs", "loss", "task", "append_head"},
       .tasks = {"classify", "next_token"},
       .no_use_to_tokens = {"outputs", "loss", "append_head"},
       .default_task = "classify"},
      {.name = "package", .keys = {"path"}},
  };
  return kinds;
}

const std::vector<DatasetKind>& dataset_kinds() {
  static const std::vector<DatasetKind> kinds = {
      {.name = "csv", .has_encoding = true, .counts_classes = true},
      {.name = "images"},
      {.name = "pairs"},
      {.name = "tensors", .counts_classes = true},
      {.name = "synthetic"},
      {.name = "text", .has_context = true, .is_stream = true},
      {.name = "text_table", .has_encoding = true, .counts_classes = true, .has_context = true},
      {.name = "tokens", .has_context = true, .is_stream = true},
  };
  return kinds;
}

const Keys& loss_kinds() {
  static const Keys kinds = {"cross_entropy", "bce", "mse", "l1"};
  return kinds;
}

}  // namespace tanren
