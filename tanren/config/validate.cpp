#include "tanren/config/validate.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <charconv>

namespace tanren {

namespace {

// Gathers problems; each check states the rule as its words.
class Problems {
 public:
  void check(bool fine, const std::string& problem) {
    if (!fine) found.push_back(problem);
  }
  void one_of(const std::string& key, const std::string& value,
              const std::vector<std::string>& known) {
    for (const auto& word : known) {
      if (word == value) return;
    }
    const auto best = nearest(value, known);
    found.push_back(key + " \"" + value + "\" is unknown; one of " + join(known) +
                    (best.empty() ? "" : " (nearest: " + best + ")"));
  }
  template <typename T>
  void at_least(const std::string& key, T value, T low) {
    check(value >= low, key + " is " + to_text(value) + "; it must be at least " + to_text(low));
  }
  // [low, high) or [low, high]
  void within(const std::string& key, double value, double low, double high, bool closed) {
    check(value >= low && (closed ? value <= high : value < high),
          key + " is " + to_text(value) + "; it must lie in [" + to_text(low) + ", " +
              to_text(high) + (closed ? "]" : ")"));
  }
  void positive(const std::string& key, double value) {
    check(value > 0, key + " is " + to_text(value) + "; it must be positive");
  }

  std::vector<std::string> found;
};

constexpr int64_t kAbsurd = int64_t{1} << 40;

bool positive_number(const std::string& text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 && value < 1e38;
}

bool whole_number(const std::string& text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

void check_run(Problems& p, const RunOptions& o) {
  p.check(o.steps || o.epochs, "the run has no length; set run.steps or run.epochs");
  p.check(!(o.steps && o.epochs), "run.steps and run.epochs are both set; keep one");
  if (o.steps) p.at_least("run.steps", *o.steps, int64_t{1});
  if (o.epochs) p.at_least("run.epochs", *o.epochs, int64_t{1});
  if (o.stop_after) p.at_least("run.stop_after", *o.stop_after, int64_t{1});
  for (const auto& length : {o.steps, o.epochs}) {
    if (length)
      p.check(*length < kAbsurd, "the run's length " + to_text(*length) + " is absurd; lower it");
  }
  p.at_least("run.seed", o.seed, int64_t{0});
  p.at_least("run.threads", o.threads, int64_t{0});
  p.check(o.threads <= 4096, "run.threads is " + to_text(o.threads) + "; at most 4096");
  int64_t index = 0;
  const bool numbered = o.device.rfind("cuda:", 0) == 0 && whole_number(o.device.substr(5), index);
  if (!numbered) p.one_of("run.device", o.device, {"auto", "cpu", "cuda", "cuda:0"});
  p.check(o.name.find('/') == std::string::npos,
          "run.name \"" + o.name + "\" has a slash; it names a folder under runs/");
}

void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known) {
  p.check(!o.kind.empty(), "model.kind is missing; one of " + join(known));
  if (!o.kind.empty()) p.one_of("model.kind", o.kind, known);
  for (const auto width : o.hidden) p.at_least("model.hidden", width, int64_t{1});
  for (const auto width : o.channels) p.at_least("model.channels", width, int64_t{1});
  p.check(o.kind != "convnet" || !o.channels.empty(),
          "model.channels is empty; a convnet needs a stage");
  p.one_of("model.norm", o.norm, {"group", "batch", "none"});
  p.one_of("model.activation", o.activation, {"relu", "gelu", "tanh"});
  p.one_of("model.loss", o.loss, {"cross_entropy", "bce", "mse", "l1"});
  p.within("model.dropout", o.dropout, 0, 1, false);
  p.within("model.label_smoothing", o.label_smoothing, 0, 1, false);
  p.check(o.label_smoothing == 0 || o.loss == "cross_entropy",
          "model.label_smoothing needs model.loss = \"cross_entropy\"");
  p.at_least("model.outputs", o.outputs, int64_t{0});
}

void check_source(Problems& p, const std::string& key, const SourceOptions& o) {
  p.one_of(key + ".kind", o.kind, {"csv", "tensors", "synthetic"});
  if (o.kind == "csv" || o.kind == "tensors") {
    p.check(!o.path.empty(), key + ".path is missing; name the " + o.kind + " file");
  }
  if (o.kind == "synthetic") {
    p.check(!o.fields.empty(), key +
                                   ".fields is missing; for example [\"inputs: float[64] in [-1, "
                                   "1]\", \"labels: int[] in [0, 9]\"]");
    p.at_least(key + ".samples", o.samples, int64_t{1});
    p.check(o.samples < kAbsurd, key + ".samples is absurd; lower it");
  }
  for (const auto size : o.shape) p.at_least(key + ".shape", size, int64_t{1});
  p.one_of(key + ".label_type", o.label_type, {"class", "value"});
  p.at_least(key + ".classes", o.classes, int64_t{0});
}

void check_data(Problems& p, const DataOptions& o) {
  if (o.train.kind.empty()) {
    p.check(false, "data.train.kind is missing; one of csv, tensors, synthetic");
  } else {
    check_source(p, "data.train", o.train);
  }
  if (!o.eval.kind.empty()) check_source(p, "data.eval", o.eval);
  p.check(!o.eval.kind.empty() || o.eval.path.empty(),
          "data.eval.path is set, data.eval.kind is not");
  p.within("data.workers", static_cast<double>(o.workers), 0, 256, true);
  p.within("data.prefetch", static_cast<double>(o.prefetch), 1, 4096, true);
  p.one_of("data.last", o.last, {"keep", "drop"});
}

void check_batch(Problems& p, const BatchOptions& o) {
  int64_t size = 0;
  if (o.global_batch != "epoch") {
    const bool fine = whole_number(o.global_batch, size) && size > 0 && size < kAbsurd;
    p.check(fine, "batch.global_batch is \"" + o.global_batch +
                      "\"; give a positive whole number or \"epoch\"");
    p.check(!fine || o.microbatch <= size, "batch.microbatch " + to_text(o.microbatch) +
                                               " is larger than batch.global_batch " +
                                               to_text(size) + "; lower it");
  }
  p.at_least("batch.microbatch", o.microbatch, int64_t{0});
}

void check_precision(Problems& p, const PrecisionOptions& o) {
  p.one_of("precision.mode", o.mode, {"auto", "fp32", "bf16", "fp16", "fp64"});
  p.one_of("precision.loss_scale", o.loss_scale, {"auto", "dynamic", "static", "none"});
  p.one_of("precision.matmul", o.matmul, {"highest", "high", "medium"});
  double scale = 0;
  p.check(o.initial_scale == "auto" || positive_number(o.initial_scale, scale),
          "precision.initial_scale is \"" + o.initial_scale +
              "\"; give a positive number below 1e38 or \"auto\"");
  p.check(o.initial_scale != "auto" || o.loss_scale != "static",
          "precision.initial_scale = \"auto\" needs a dynamic loss scale; give a number");
  p.check(o.growth_factor > 1,
          "precision.growth_factor is " + to_text(o.growth_factor) + "; it must be above 1");
  p.check(o.backoff_factor > 0 && o.backoff_factor < 1,
          "precision.backoff_factor is " + to_text(o.backoff_factor) + "; it must lie in (0, 1)");
  p.at_least("precision.growth_interval", o.growth_interval, int64_t{1});
  p.positive("precision.min_scale", o.min_scale);
  p.check(scale == 0 || o.min_scale <= scale,
          "precision.min_scale is above precision.initial_scale; lower it");
  p.check(o.mode != "fp64" || o.loss_scale == "auto" || o.loss_scale == "none",
          "precision.loss_scale with mode fp64 makes no sense; drop it");
}

void check_optimizer(Problems& p, const OptimizerOptions& o) {
  p.one_of("optimizer.kind", o.kind, {"adamw", "sgd"});
  p.positive("optimizer.learning_rate", o.learning_rate);
  p.check(o.learning_rate < 1e6, "optimizer.learning_rate is absurd; lower it");
  p.at_least("optimizer.weight_decay", o.weight_decay, 0.0);
  p.within("optimizer.beta1", o.beta1, 0, 1, false);
  p.within("optimizer.beta2", o.beta2, 0, 1, false);
  p.positive("optimizer.eps", o.eps);
  p.within("optimizer.momentum", o.momentum, 0, 1, false);
  p.within("optimizer.dampening", o.dampening, 0, 1, true);
  p.check(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
          "optimizer.nesterov needs a momentum and no dampening");
  const OptimizerOptions defaults;
  const auto meaningless = [&](const char* key, bool changed, const char* kind) {
    p.check(!changed || o.kind != kind, std::string("optimizer.") + key +
                                            " has no meaning for optimizer.kind \"" + o.kind +
                                            "\"; drop it");
  };
  meaningless("beta1", o.beta1 != defaults.beta1, "sgd");
  meaningless("beta2", o.beta2 != defaults.beta2, "sgd");
  meaningless("eps", o.eps != defaults.eps, "sgd");
  meaningless("momentum", o.momentum != defaults.momentum, "adamw");
  meaningless("dampening", o.dampening != defaults.dampening, "adamw");
  meaningless("nesterov", o.nesterov != defaults.nesterov, "adamw");
  for (const auto& group : o.groups) {
    p.check(!group.parameters.empty(),
            "an entry of optimizer.groups has no parameters; give patterns");
    if (group.learning_rate_scale)
      p.at_least("optimizer.groups.learning_rate_scale", *group.learning_rate_scale, 0.0);
    if (group.weight_decay) p.at_least("optimizer.groups.weight_decay", *group.weight_decay, 0.0);
  }
}

}  // namespace

int64_t top_k_of(const std::string& metric) {
  if (metric == "accuracy") return 1;
  int64_t k = 0;
  return metric.rfind("top", 0) == 0 && whole_number(metric.substr(3), k) && k > 0 ? k : 0;
}

std::vector<std::string> validate(const RunConfig& config,
                                  const std::vector<std::string>& known_model_kinds) {
  Problems p;
  check_run(p, config.run);
  check_model(p, config.model, known_model_kinds);
  check_data(p, config.data);
  check_batch(p, config.batch);
  check_precision(p, config.precision);
  check_optimizer(p, config.optimizer);
  p.one_of("schedule.kind", config.schedule.kind, {"constant", "linear", "cosine"});
  p.at_least("schedule.warmup_steps", config.schedule.warmup_steps, int64_t{0});
  p.within("schedule.final_fraction", config.schedule.final_fraction, 0, 1, true);
  p.at_least("clip.norm", config.clip.norm, 0.0);
  p.one_of("guard.nan_loss", config.guard.nan_loss, {"stop", "skip"});
  p.one_of("guard.nan_gradient", config.guard.nan_gradient, {"stop", "skip"});
  p.at_least("guard.max_skips", config.guard.max_skips, int64_t{1});
  p.at_least("evaluate.every", config.evaluate.every, int64_t{0});
  p.at_least("evaluate.batch", config.evaluate.batch, int64_t{0});
  for (const auto& metric : config.evaluate.metrics) {
    p.check(top_k_of(metric) > 0,
            "evaluate.metrics has \"" + metric + "\"; known are accuracy and top<k> (top5)");
  }
  p.at_least("checkpoint.every", config.checkpoint.every, int64_t{0});
  p.at_least("checkpoint.keep", config.checkpoint.keep, int64_t{1});
  p.at_least("metrics.console_every", config.metrics.console_every, int64_t{1});
  return p.found;
}

}  // namespace tanren
