#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/kinds.h"
#include "tanren/config/levels.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, GroupOptions& o) {
  add("parameters", &o.parameters, "Patterns of parameter names (* any text, ? one character).");
  add("learning_rate_scale", &o.learning_rate_scale, "Factor on the learning rate, ≥ 0.");
  add("weight_decay", &o.weight_decay, "Weight decay instead of optimizer.weight_decay, ≥ 0.");
}

void fields(FieldList& add, OptimizerOptions& o) {
  add("kind", &o.kind,
      "adamw, adam, nadam, radam, adagrad, rmsprop, adafactor, lion, muon, sgd; each as "
      "torch.optim has it (lion as published).");
  add("init_from", &o.init_from, Identity::by_name,
      "adamw, adam, sgd: start from the optimizer state in a training checkpoint of PyTorch (.pt, "
      ".pth, .bin), usually the file of model.init_from. From a file with several optimizers, each "
      "objective takes the one that fits. Relative to the config file.",
      TextKind::file);
  add("learning_rate", &o.learning_rate, Identity::on_request, "Peak learning rate, in (0, 1e6).");
  add("weight_decay", &o.weight_decay,
      "Decoupled in adamw, adafactor, lion, muon; else added to the gradient. ≥ 0; default 0.01 "
      "for adamw, sgd and lion, 0.1 for muon, else 0.");
  add("beta1", &o.beta1, "adamw, adam, nadam, radam, lion, muon's AdamW; in [0, 1).");
  add("beta2", &o.beta2,
      "adamw, adam, nadam, radam, lion, muon's AdamW; in [0, 1); default 0.999, lion 0.99.");
  add("eps", &o.eps,
      "adamw, adam, nadam, radam, adagrad, rmsprop, muon's AdamW; > 0; default 1e-8, adagrad "
      "1e-10.");
  add("momentum", &o.momentum, "sgd, rmsprop, muon, in [0, 1); default 0, muon 0.95.");
  add("dampening", &o.dampening, "sgd, in [0, 1].");
  add("nesterov", &o.nesterov,
      "sgd (needs momentum and no dampening), muon; default false, muon true.");
  add("decay_norms_and_biases", &o.decay_norms_and_biases,
      "false: no weight decay on 1-dim parameters.");
  add("groups", &o.groups,
      "Tables [[optimizer.groups]]; a parameter belongs to the first that matches it.");
  add("layer_decay", &o.layer_decay,
      "Factor on a parameter's rate for each layer after its own, in (0, 1]; 1: off. It multiplies "
      "a group's learning_rate_scale.");
  add("layers", &o.layers,
      "Patterns of the layers from the input on, {} for a block's number, such as \"*wte*\", "
      "\"transformer.h.{}.*\"; parameters without a match are the last layer. Empty: one layer per "
      "block, by the first number in a name; parameters before the first block are the first "
      "layer.");
  add("amsgrad", &o.amsgrad, "adamw, adam: divide by the largest second moment so far.");
  add("state", &o.state,
      "adamw, adam: the moments in fp32 (8 bytes an element), bf16 (4, rounded at random), 8bit "
      "(2, in blocks of 256 elements). Parameters below 4096 elements keep fp32.");
  add("fp32_state", &o.fp32_state,
      "state bf16, 8bit: patterns of parameters that keep fp32 moments; embeddings, whose rows are "
      "updated unequally often.");
  add("decoupled_weight_decay", &o.decoupled_weight_decay,
      "nadam, radam: weight decay as adamw's.");
  add("momentum_decay", &o.momentum_decay, "nadam, ≥ 0.");
  add("alpha", &o.alpha, "rmsprop: decay of the average of squares, in [0, 1).");
  add("centered", &o.centered,
      "rmsprop: divide by the standard deviation instead of the root mean square.");
  add("learning_rate_decay", &o.learning_rate_decay,
      "adagrad: the rate of update t is divided by 1 + (t - 1) × this value, ≥ 0.");
  add("initial_accumulator", &o.initial_accumulator, "adagrad: first sum of squares, ≥ 0.");
  add("beta2_decay", &o.beta2_decay,
      "adafactor: exponent in beta2 of update t, 1 - t ^ beta2_decay; ≤ 0.");
  add("clip_threshold", &o.clip_threshold,
      "adafactor: largest root mean square of an update, ≥ 1.");
  add("scale_floor", &o.scale_floor,
      "adafactor: lower limit of the parameter's root mean square that scales its rate, ≥ 0.");
  add("relative_step", &o.relative_step,
      "adafactor: true: the rate is min(learning_rate, 1/√t) × the parameter's root mean "
      "square, as in torch; false: learning_rate (transformers' relative_step and scale_parameter "
      "off).");
  add("newton_schulz_steps", &o.newton_schulz_steps, "muon, 1 to 99.");
  add("adjust_learning_rate", &o.adjust_learning_rate,
      "muon: match_rms_adamw (× 0.2 √max(rows, columns): one rate fits matrices and AdamW's "
      "parameters), original (× √max(1, rows / columns)).");
  add("adamw_parameters", &o.adamw_parameters,
      "muon: patterns of matrices that AdamW updates (embeddings, heads), beside all 0- and 1-dim "
      "parameters. Kernels of convolutions are matrices of one row per output channel.");
}

namespace {

// Reports what an optimizer cannot do if its parameters and state have 16 bits.
void check_narrow(Problems& p, const PrecisionOptions& precision, const OptimizerOptions& o) {
  if (!has_narrow_weights(precision) || properties_of(precision).master_weights) return;
  constexpr double kLeastHalf = 0x1p-24;  // smaller ones round to 0 in fp16, or nearly do
  const OptimizerKind* kind = optimizer_kind(o.kind);
  const bool adds_eps = kind != nullptr && reads(*kind, "eps");
  p.check(
      !adds_eps || properties_of(precision).cast_model_type != "fp16" || *o.eps >= kLeastHalf,
      fmt::format("optimizer.eps is {}, which is 0 in fp16, and precision.level \"{}\" keeps all "
                  "state in fp16; set it to 1e-4, or take bf16, O2 or sgd",
                  to_text(*o.eps), precision.level));
  p.check(
      o.state == "fp32",
      fmt::format("optimizer.state \"{}\" packs moments of fp32, and with precision.level \"{}\" "
                  "they have 16 bits; drop it, or set precision.master_weights",
                  o.state, precision.level));
}

void check_values(Problems& p, const PrecisionOptions& precision, const OptimizerOptions& asked) {
  const OptimizerOptions o = with_defaults(asked);
  check_narrow(p, precision, o);
  const OptimizerKind* kind = optimizer_kind(o.kind);
  p.check(o.learning_rate > 0 && o.learning_rate < 1e6,
          fmt::format("optimizer.learning_rate is {}; it must be positive and below 1e6",
                      to_text(o.learning_rate)));
  p.not_negative("optimizer.weight_decay", *o.weight_decay);
  p.within("optimizer.beta1", o.beta1, 0, 1, false);
  p.within("optimizer.beta2", *o.beta2, 0, 1, false);
  p.positive("optimizer.eps", *o.eps);
  p.within("optimizer.momentum", *o.momentum, 0, 1, false);
  p.one_of("optimizer.state", o.state, {"fp32", "bf16", "8bit"});
  p.check(o.state == "fp32" || !o.amsgrad,
          "optimizer.amsgrad keeps a third moment, which optimizer.state = \"" + o.state +
              "\" has no place for; drop one of them");
  p.within("optimizer.dampening", o.dampening, 0, 1, true);
  p.check(
      (kind != nullptr && kind->nesterov) || !*o.nesterov || (*o.momentum > 0 && o.dampening == 0),
      "optimizer.nesterov needs a momentum and no dampening");
  p.check(
      o.layer_decay > 0 && o.layer_decay <= 1,
      fmt::format("optimizer.layer_decay is {}; it must lie in (0, 1]", to_text(o.layer_decay)));
  p.check(o.layers.empty() || o.layer_decay != 1,
          "optimizer.layers does nothing while optimizer.layer_decay is 1; lower that or drop it");
  p.not_negative("optimizer.momentum_decay", o.momentum_decay);
  p.within("optimizer.alpha", o.alpha, 0, 1, false);
  p.not_negative("optimizer.learning_rate_decay", o.learning_rate_decay);
  p.not_negative("optimizer.initial_accumulator", o.initial_accumulator);
  p.within("optimizer.beta2_decay", o.beta2_decay, -100, 0, true);
  p.within("optimizer.clip_threshold", o.clip_threshold, 1, 1e38, true);
  p.not_negative("optimizer.scale_floor", o.scale_floor);
  p.within("optimizer.newton_schulz_steps", o.newton_schulz_steps, 1, 99, true);
  p.one_of("optimizer.adjust_learning_rate", o.adjust_learning_rate,
           {"match_rms_adamw", "original"});
  for (size_t i = 0; i < o.groups.size(); ++i) {
    const auto& group = o.groups[i];
    const std::string name = fmt::format("optimizer.groups[{}]", i);
    p.check(!group.parameters.empty(), name + " has no parameters; give it patterns");
    p.not_negative(name + ".learning_rate_scale", group.learning_rate_scale.value_or(0));
    p.not_negative(name + ".weight_decay", group.weight_decay.value_or(0));
  }
}

}  // namespace

void check_optimizer(Problems& p, const RunConfig& config) {
  const OptimizerOptions& o = config.optimizer;
  p.check(o.state == "fp32" || config.precision.mode != "fp64",
          "optimizer.state \"" + o.state +
              "\" rounds what precision.mode \"fp64\" keeps exact; drop one of them");
  if (o.state == "fp32") p.unused("optimizer.", {"fp32_state"}, "optimizer.state", "fp32");
  p.one_of("optimizer.kind", o.kind, names_of(optimizer_kinds()));
  if (const OptimizerKind* kind = optimizer_kind(o.kind)) {
    p.unused("optimizer.", unread_keys(optimizer_kinds(), *kind), "optimizer.kind", o.kind);
  }
  check_values(p, config.precision, o);
}

}  // namespace tanren
