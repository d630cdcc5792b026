// The only list of keys: for each options struct a function that shows every field to a visitor,
// with its help text and its role in identity. Reading, --set, help, docs, nearest names, identity
// and writing all use visit_config and name no key themselves. [model] and [data] are in
// model_data_fields.h, [parallel] in parallel_fields.h.
#pragma once

#include "tanren/config/field_info.h"
#include "tanren/config/model_data_fields.h"
#include "tanren/config/parallel_fields.h"
#include "tanren/config/run_config.h"

#include <string>

namespace tanren {

template <class V>
void fields(V& v, RunOptions& o) {
  v("name", o.name,
    {"Name of the run and of its folder under runs/. Default: the file's stem.", Identity::free});
  v("seed", o.seed, {"Seed of initialisation, order, dropout. 0 or more."});
  v("steps", o.steps, {"Length in applied updates, ≥ 1. This or run.epochs.", Identity::may_grow});
  v("epochs", o.epochs,
    {"Length in passes over the training data, ≥ 1. This or run.steps.", Identity::may_grow});
  v("device", o.device, {"auto, cpu, cuda, cuda:<i>.", Identity::free});
  v("threads", o.threads,
    {"Threads of the step in each process, 0 to 4096; 0: its share of the cores it may use, which "
     "the ranks of a machine divide, and no more than its operators can use.",
     Identity::free});
  v("deterministic", o.deterministic,
    {"Only kernels that repeat bitwise (CUDA; the CPU ones always do)."});
  v("stop_after", o.stop_after,
    {"Save and stop after so many applied steps of this start (≥ 1); the run can go on.",
     Identity::free});
}

template <class V>
void fields(V& v, BatchOptions& o) {
  v("global_batch", o.global_batch,
    {"Samples per update over all ranks, or \"epoch\".", Identity::defines, true});
  v("microbatch", o.microbatch,
    {"Samples per forward and backward; 0: a rank's whole share.", Identity::free});
}

template <class V>
void fields(V& v, PrecisionOptions& o) {
  v("mode", o.mode,
    {"auto, fp32, bf16, fp16 (autocast, fp32 parameters), fp64 (proofs).", Identity::on_request});
  v("loss_scale", o.loss_scale,
    {"auto (dynamic for fp16, else none), dynamic, static, none.", Identity::on_request});
  v("initial_scale", o.initial_scale,
    {"First loss scale, or \"auto\": found on the first window.", Identity::on_request, true});
  v("growth_factor", o.growth_factor,
    {"Dynamic scale: factor after growth_interval quiet updates, in (1, 65536].",
     Identity::on_request});
  v("backoff_factor", o.backoff_factor,
    {"Dynamic scale: factor after an overflow, in (0, 1).", Identity::on_request});
  v("growth_interval", o.growth_interval,
    {"Quiet updates before the scale grows, ≥ 1.", Identity::on_request});
  v("min_scale", o.min_scale,
    {"Floor, > 0; at it an overflow counts as a non-finite gradient.", Identity::on_request});
  v("report_flush", o.report_flush,
    {"Log the share of gradient elements that fp16 would flush or overflow.",
     Identity::on_request});
  v("matmul", o.matmul,
    {"fp32 matrix products on CUDA: highest, high (TF32), medium.", Identity::on_request});
  v("cudnn_benchmark", o.cudnn_benchmark,
    {"Let cuDNN time its algorithms; such runs do not repeat bitwise.", Identity::on_request});
}

// One table of optimizer.groups. Its keys are no full keys, so visit_config does not show them.
template <class V>
void fields(V& v, GroupOptions& o) {
  v("parameters", o.parameters, {"Patterns of parameter names (* any run, ? one character)."});
  v("learning_rate_scale", o.learning_rate_scale, {"Factor on the learning rate, ≥ 0."});
  v("weight_decay", o.weight_decay, {"Instead of optimizer.weight_decay, ≥ 0."});
}

template <class V>
void fields(V& v, OptimizerOptions& o) {
  v("kind", o.kind,
    {"adamw, adam, nadam, radam, adagrad, rmsprop, adafactor, lion, muon, sgd; each as torch.optim "
     "has it (lion as published)."});
  v("init_from", o.init_from,
    {"adamw, adam, sgd: start from the state that a training checkpoint of PyTorch (.pt, .pth, "
     ".bin) "
     "holds of its optimizer; usually the file of model.init_from. Relative to the config file.",
     Identity::by_name, false, PathKind::file});
  v("learning_rate", o.learning_rate, {"Peak learning rate, in (0, 1e6).", Identity::on_request});
  v("weight_decay", o.weight_decay,
    {"Decoupled in adamw, adafactor, lion, muon; else added to the gradient. ≥ 0; default 0.01 for "
     "adamw, sgd and lion, 0.1 for muon, else 0."});
  v("beta1", o.beta1, {"adamw, adam, nadam, radam, lion, muon's AdamW; in [0, 1)."});
  v("beta2", o.beta2,
    {"adamw, adam, nadam, radam, lion, muon's AdamW; in [0, 1); default 0.999, lion 0.99."});
  v("eps", o.eps,
    {"adamw, adam, nadam, radam, adagrad, rmsprop, muon's AdamW; > 0; default 1e-8, adagrad "
     "1e-10."});
  v("momentum", o.momentum, {"sgd, rmsprop, muon, in [0, 1); default 0, muon 0.95."});
  v("dampening", o.dampening, {"sgd, in [0, 1]."});
  v("nesterov", o.nesterov,
    {"sgd (needs momentum and no dampening), muon; default false, muon true."});
  v("decay_norms_and_biases", o.decay_norms_and_biases,
    {"false: no weight decay on 1-dim parameters."});
  v("groups", o.groups,
    {"Tables [[optimizer.groups]]; a parameter belongs to the first that matches it."});
  v("layer_decay", o.layer_decay,
    {"Rate of a parameter × layer_decay ^ (layers between its own and the last), in (0, 1]; 1: "
     "off. Multiplies a group's learning_rate_scale."});
  v("layers", o.layers,
    {"Patterns of the layers from the input on, {} a block's number, such as \"*wte*\", "
     "\"transformer.h.{}.*\"; what none matches is the last layer. Empty: by the first number in a "
     "name; what comes before the first block is the first layer."});
  v("amsgrad", o.amsgrad, {"adamw, adam: divide by the largest second moment so far."});
  v("state", o.state,
    {"adamw, adam: the moments in fp32 (8 bytes an element), bf16 (4, rounded at random), 8bit (2, "
     "in blocks of 256 elements). Parameters below 4096 elements keep fp32."});
  v("fp32_state", o.fp32_state,
    {"state bf16, 8bit: patterns of parameters that keep fp32 moments; embeddings, whose rows are "
     "updated unequally often."});
  v("decoupled_weight_decay", o.decoupled_weight_decay, {"nadam, radam: weight decay as adamw's."});
  v("momentum_decay", o.momentum_decay, {"nadam, ≥ 0."});
  v("alpha", o.alpha, {"rmsprop: average of squares, in [0, 1)."});
  v("centered", o.centered, {"rmsprop: divide by the deviation instead of the square mean."});
  v("learning_rate_decay", o.learning_rate_decay,
    {"adagrad: the rate of update t is divided by 1 + (t - 1) × it, ≥ 0."});
  v("initial_accumulator", o.initial_accumulator, {"adagrad: first sum of squares, ≥ 0."});
  v("beta2_decay", o.beta2_decay,
    {"adafactor: exponent of the averages' weight, ≤ 0 (1 - t ^ it is beta2 of update t)."});
  v("clip_threshold", o.clip_threshold, {"adafactor: largest root mean square of an update, ≥ 1."});
  v("scale_floor", o.scale_floor,
    {"adafactor: least root mean square that a parameter counts with, ≥ 0."});
  v("relative_step", o.relative_step,
    {"adafactor: true, as torch: min(rate, 1/√t) × the parameter's root mean square; false: the "
     "rate itself (transformers' relative_step and scale_parameter off)."});
  v("newton_schulz_steps", o.newton_schulz_steps, {"muon, 1 to 99."});
  v("adjust_learning_rate", o.adjust_learning_rate,
    {"muon: match_rms_adamw (× 0.2 √max(rows, columns): one rate fits matrices and AdamW's "
     "parameters), original (× √max(1, rows / columns))."});
  v("adamw_parameters", o.adamw_parameters,
    {"muon: patterns of matrices that AdamW updates (embeddings, heads), beside all 0- and 1-dim "
     "parameters. Kernels of convolutions are matrices of one row per output channel."});
}

template <class V>
void fields(V& v, ScheduleOptions& o) {
  v("kind", o.kind,
    {"constant, linear, cosine, cosine_with_restarts, polynomial, inverse_sqrt, step, multi_step, "
     "one_cycle, warmup_stable_decay, reduce_on_plateau.",
     Identity::on_request});
  v("warmup_steps", o.warmup_steps,
    {"Updates over which the rate rises linearly to its peak, ≥ 0; every kind but one_cycle.",
     Identity::on_request});
  v("final_fraction", o.final_fraction,
    {"Rate at the end, as a share of the peak, in [0, 1]: linear, cosine, cosine_with_restarts, "
     "polynomial, warmup_stable_decay; reduce_on_plateau: the floor.",
     Identity::on_request});
  v("cycles", o.cycles, {"cosine_with_restarts, ≥ 1.", Identity::on_request});
  v("cycle_growth", o.cycle_growth,
    {"cosine_with_restarts: length of a cycle over that of the one before, in [1, 1000].",
     Identity::on_request});
  v("power", o.power, {"polynomial, > 0.", Identity::on_request});
  v("timescale", o.timescale,
    {"inverse_sqrt: updates after which the rate is peak / √2; 0: warmup_steps, or 10000 "
     "without.",
     Identity::on_request});
  v("step_size", o.step_size,
    {"step: updates after the warm-up between two reductions, ≥ 1.", Identity::on_request});
  v("milestones", o.milestones,
    {"multi_step: applied updates before each reduction, rising; the warm-up counts.",
     Identity::on_request});
  v("factor", o.factor,
    {"step, multi_step, reduce_on_plateau: factor of a reduction, in (0, 1).",
     Identity::on_request});
  v("warmup_fraction", o.warmup_fraction,
    {"one_cycle: share of the run that rises, in (0, 1).", Identity::on_request});
  v("div_factor", o.div_factor, {"one_cycle: peak over first rate, ≥ 1.", Identity::on_request});
  v("final_div_factor", o.final_div_factor,
    {"one_cycle: first rate over last rate, ≥ 1.", Identity::on_request});
  v("shape", o.shape,
    {"one_cycle, warmup_stable_decay: cosine, linear; the latter also 1-sqrt.",
     Identity::on_request});
  v("decay_steps", o.decay_steps,
    {"warmup_stable_decay: updates of the decay at the end; 0: a tenth of the run.",
     Identity::on_request});
  v("metric", o.metric,
    {"reduce_on_plateau: loss, or one of evaluate.metrics.", Identity::on_request});
  v("mode", o.mode,
    {"reduce_on_plateau: min, max; auto: min for losses and errors, max for scores.",
     Identity::on_request});
  v("patience", o.patience,
    {"reduce_on_plateau: evaluations without improvement that are borne, ≥ 0.",
     Identity::on_request});
  v("threshold", o.threshold,
    {"reduce_on_plateau: least improvement that counts, ≥ 0.", Identity::on_request});
  v("threshold_mode", o.threshold_mode,
    {"reduce_on_plateau: rel (of the best value), abs.", Identity::on_request});
  v("cooldown", o.cooldown,
    {"reduce_on_plateau: evaluations after a reduction that are not judged, ≥ 0.",
     Identity::on_request});
}

template <class V>
void fields(V& v, ClipOptions& o) {
  v("norm", o.norm,
    {"Largest global gradient norm of an update, ≥ 0; 0: no clipping.", Identity::on_request});
  v("value", o.value,
    {"Largest absolute value of a gradient element, after clip.norm, ≥ 0; 0: no clipping.",
     Identity::on_request});
}

template <class V>
void fields(V& v, GuardOptions& o) {
  v("nan_loss", o.nan_loss,
    {"A non-finite loss: stop (exit 1) or skip the update.", Identity::free});
  v("nan_gradient", o.nan_gradient,
    {"A non-finite gradient that is no fp16 overflow: stop or skip.", Identity::free});
  v("max_skips", o.max_skips,
    {"Stop after so many skips in a row that are no overflow, ≥ 1.", Identity::free});
  v("spike_z", o.spike_z,
    {"Tell of a loss or gradient norm so many deviations above its running mean; 0: never.",
     Identity::free});
  v("spike_window", o.spike_window,
    {"Updates that this mean looks back on, and waits for at first, ≥ 2.", Identity::free});
  v("growth_steps", o.growth_steps,
    {"Steps before the first look for tensors and graphs that are never freed; 0: never.",
     Identity::free});
}

template <class V>
void fields(V& v, MemoryOptions& o) {
  v("allocator", o.allocator,
    {"CPU tensors: cached (large ones keep their pages), default (torch's), auto.",
     Identity::free});
  v("limit", o.limit,
    {"Most that tensors may take: bytes (\"8GiB\", \"500MB\"), a share of the machine's memory or "
     "the "
     "device's (\"0.5\"), none; auto: what cgroup, machine or device leave.",
     Identity::free});
  v("recompute", o.recompute,
    {"Patterns of the model's blocks (as tanren summary names them) that keep their input alone "
     "for "
     "backward and are computed again there: less memory, more time, the same numbers. "
     "[\"*\"]: all.",
     Identity::free});
  v("offload", o.offload,
    {"Patterns of blocks that move to host memory what they keep for backward, from the device and "
     "back beside its work: less of the device's memory, the same numbers. Of a block that is "
     "recomputed nothing is left to move; on the CPU it says so and does nothing.",
     Identity::free});
  v("recovery", o.recovery,
    {"When memory runs out: split (a smaller microbatch, same global batch and numbers), "
     "same_split "
     "(once more as it was), off (end the run); auto: split, but same_split where batch norm would "
     "see another microbatch.",
     Identity::free});
  v("release_cache", o.release_cache,
    {"When freed memory that the allocator keeps for the next step goes back: never, pressure "
     "(after "
     "a step, if less than a twentieth of the machine's, cgroup's or device's memory is left), "
     "step "
     "(after each). All of it also goes after an evaluation and when memory runs out.",
     Identity::free});
}

template <class V>
void fields(V& v, AverageOptions& o) {
  v("kind", o.kind, {"Average of the weights beside them: none, ema, swa."});
  v("decay", o.decay, {"ema: share of the old average that stays, in [0, 1)."});
  v("decay_warmup", o.decay_warmup,
    {"ema: a smaller decay at first, min(decay, (1 + t) / (10 + t)) after t updates."});
  v("every", o.every, {"Applied steps between updates of the average, ≥ 1."});
  v("start", o.start,
    {"First step averaged: a whole number of steps, or a share of the run in (0, 1); auto: 0 "
     "(ema), "
     "0.75 (swa).",
     Identity::defines, true});
  v("learning_rate", o.learning_rate,
    {"swa: constant learning rate from the start of averaging on; 0: the schedule's.",
     Identity::on_request});
  v("buffers", o.buffers,
    {"Batch norm's running statistics: average, copy, or estimate anew from training data; auto: "
     "average (ema), estimate (swa with batch norm)."});
  v("estimate_batches", o.estimate_batches,
    {"Training batches of an estimate; 0: one pass over all the data."});
  v("evaluate", o.evaluate, {"Evaluate and export the averaged weights, not the raw ones."});
}

template <class V>
void fields(V& v, EvaluateOptions& o) {
  v("every", o.every,
    {"Applied steps between evaluations; 0: only at the end.", Identity::evaluates});
  v("batch", o.batch, {"Samples per evaluation batch; 0: the microbatch.", Identity::free});
  v("metrics", o.metrics,
    {"accuracy, top<k>; precision_, recall_ or f1_ with macro, micro or binary (of class 1); "
     "auroc, "
     "confusion_matrix; mse, mae, r2; perplexity.",
     Identity::free});
  v("checkpoint", o.checkpoint,
    {"What tanren eval reads: latest, best, step-<n>, or exported (model.safetensors).",
     Identity::free});
}

template <class V>
void fields(V& v, EarlyStopOptions& o) {
  v("patience", o.patience,
    {"Evaluations without improvement that end the run; 0: off.", Identity::free});
  v("metric", o.metric, {"What must improve: loss, or one of evaluate.metrics.", Identity::free});
  v("mode", o.mode, {"auto (by the metric), min, max.", Identity::free});
  v("min_delta", o.min_delta,
    {"A value counts as better if it is better by more than this, ≥ 0.", Identity::free});
  v("start", o.start, {"Evaluations before this step do not count, ≥ 0.", Identity::free});
}

template <class V>
void fields(V& v, CheckpointOptions& o) {
  v("every", o.every,
    {"Applied steps between checkpoints; 0: only at the end or when stopped.", Identity::free});
  v("keep", o.keep, {"Newest checkpoints that stay, ≥ 1.", Identity::free});
  v("best", o.best,
    {"Best checkpoints that stay beside them; an evaluation among the best writes one. 0: none.",
     Identity::free});
  v("metric", o.metric, {"What ranks them: loss, or one of evaluate.metrics.", Identity::free});
  v("mode", o.mode, {"auto (by the metric), min, max.", Identity::free});
}

template <class V>
void fields(V& v, MetricsOptions& o) {
  v("console_every", o.console_every,
    {"Steps between console lines, ≥ 1; the log has every one.", Identity::free});
  v("jsonl", o.jsonl, {"Write log.jsonl, one line per attempt.", Identity::free});
  v("tensorboard", o.tensorboard,
    {"Write TensorBoard event files under tensorboard/.", Identity::free});
  v("tensorboard_every", o.tensorboard_every,
    {"Applied steps between points of its curves, ≥ 1; speeds are means over them.",
     Identity::free});
}

template <class V>
void fields(V& v, GenerateOptions& o) {
  v("prompt", o.prompt,
    {"What the sample of tanren eval goes on from: text for byte data, else token numbers "
     "(\"15496 11\"); empty: token 0, a new line for text.",
     Identity::free});
  v("tokens", o.tokens, {"Tokens to sample, 0 to 2^20; 0: no sample.", Identity::free});
  v("temperature", o.temperature,
    {"Logits are divided by it, ≥ 0; 0: the most probable token each time.", Identity::free});
  v("top_k", o.top_k,
    {"Sample among the k most probable tokens only; 0: among all.", Identity::free});
  v("top_p", o.top_p,
    {"Sample among the fewest tokens that hold this probability, in (0, 1].", Identity::free});
  v("seed", o.seed, {"Seed of the sample, 0 or more.", Identity::free});
  v("num_beams", o.num_beams,
    {"1: tokens are drawn; above: beam search, which keeps the num_beams most probable texts and "
     "draws nothing.",
     Identity::free});
  v("length_penalty", o.length_penalty,
    {"Beams that end at different lengths compare by log probability / length^length_penalty.",
     Identity::free});
  v("stop_token", o.stop_token,
    {"Token (for text: byte) that ends the text, and stands in it; -1: none.", Identity::free});
}

// Calls visitor(full_key, member&, FieldInfo) for every key, in the order of the documentation.
template <class F>
void visit_config(RunConfig& config, F&& visitor) {
  const auto section = [&](const std::string& name, auto& options) {
    auto with_prefix = [&](const char* key, auto& member, const FieldInfo& info) {
      visitor(name + "." + key, member, info);
    };
    fields(with_prefix, options);
  };
  section("run", config.run);
  section("model", config.model);
  section("data", config.data);
  section("data.train", config.data.train);
  // Data for evaluation does not change training, and its fingerprint detects changes.
  auto of_evaluation = [&](const char* key, auto& member, FieldInfo info) {
    const std::string_view name = key;
    if (name == "scale" || name == "offset") info.identity = Identity::free;
    if (info.identity == Identity::defines) info.identity = Identity::evaluates;
    visitor("data.eval." + std::string(name), member, info);
  };
  fields(of_evaluation, config.data.eval);
  section("batch", config.batch);
  section("precision", config.precision);
  section("optimizer", config.optimizer);
  section("schedule", config.schedule);
  section("clip", config.clip);
  section("guard", config.guard);
  section("memory", config.memory);
  section("parallel", config.parallel);
  section("average", config.average);
  section("evaluate", config.evaluate);
  section("early_stop", config.early_stop);
  section("checkpoint", config.checkpoint);
  section("metrics", config.metrics);
  section("generate", config.generate);
}

}  // namespace tanren
