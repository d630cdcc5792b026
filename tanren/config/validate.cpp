#include "tanren/config/validate.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/identity.h"
#include "tanren/config/synonyms.h"

#include <charconv>
#include <cmath>
#include <set>

namespace tanren {

namespace {

// Beyond it a count is a slip of the keyboard, and sums and products of counts would overflow.
constexpr int64_t kAbsurd = int64_t{1} << 40;
constexpr int64_t kAbsurdWidth = int64_t{1} << 24;

// Gathers problems; each check states the rule as its words, the key first.
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
    const auto ours = word_synonym(key, value);
    const auto best = nearest(value, known);
    found.push_back(key + " \"" + value + "\" is unknown; one of " + join(known) +
                    (ours           ? " (here it is " + *ours + ")"
                     : best.empty() ? ""
                                    : " (nearest: " + best + ")"));
  }
  // low ≤ value < 2^40
  void count(const std::string& key, int64_t value, int64_t low) {
    at_least(key, value, low);
    check(value < kAbsurd, key + " is " + to_text(value) + ", which is absurd; lower it");
  }
  // Sizes that are multiplied or allocated: 1 ≤ each, and their product is no absurd one.
  void sizes(const std::string& key, const std::vector<int64_t>& values) {
    double product = 1;
    for (const auto value : values) {
      at_least(key, value, int64_t{1});
      check(value < kAbsurdWidth, key + " has " + to_text(value) + ", which is absurd; lower it");
      product *= static_cast<double>(value);
    }
    check(product < static_cast<double>(kAbsurd) || key.find("shape") == std::string::npos,
          key + " is " + to_text(product) + " numbers a sample, which is absurd; lower it");
    check(values.size() <= 64, key + " has " + to_text(static_cast<int64_t>(values.size())) +
                                   " entries, which is absurd; at most 64");
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
    check(value > 0 && std::isfinite(value),
          key + " is " + to_text(value) + "; it must be positive and finite");
  }
  void not_negative(const std::string& key, double value) {
    check(value >= 0 && std::isfinite(value),
          key + " is " + to_text(value) + "; it must be 0 or more and finite");
  }
  // Keys that were changed although the `kind_key` makes them do nothing.
  void unused(const std::set<std::string>& changed, const std::string& section,
              const std::vector<std::string>& keys, const std::string& kind_key,
              const std::string& kind) {
    for (const auto& key : keys) {
      check(changed.count(section + key) == 0,
            section + key + " has no meaning for " + kind_key + " \"" + kind + "\"; drop it");
    }
  }

  std::vector<std::string> found;
};

template <typename T>
bool reads_as(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

void check_run(Problems& p, const RunOptions& o) {
  p.check(o.steps || o.epochs, "run.steps and run.epochs are both missing; set one");
  p.check(!(o.steps && o.epochs),
          "run.steps and run.epochs are both set; keep one (--set run.epochs=none takes it back)");
  if (o.steps) p.count("run.steps", *o.steps, 1);
  if (o.epochs) p.count("run.epochs", *o.epochs, 1);
  if (o.stop_after) p.count("run.stop_after", *o.stop_after, 1);
  p.at_least("run.seed", o.seed, int64_t{0});
  p.within("run.threads", static_cast<double>(o.threads), 0, 4096, true);
  int64_t index = -1;
  const bool numbered = o.device.rfind("cuda:", 0) == 0 && reads_as(o.device.substr(5), index) &&
                        index >= 0 && index < 1024;
  if (!numbered) p.one_of("run.device", o.device, {"auto", "cpu", "cuda", "cuda:0"});
  const bool plain = o.name.find('/') == std::string::npos && o.name != "." && o.name != "..";
  p.check(plain, "run.name \"" + o.name +
                     "\" names a folder under runs/; give it no slash and more than dots");
  bool printable = o.name.size() <= 200;
  for (const unsigned char c : o.name) printable = printable && c >= 0x20 && c != 0x7f;
  p.check(printable, "run.name has control characters or more than 200 bytes; give a plain name");
}

void check_model(Problems& p, const ModelOptions& o, const std::vector<std::string>& known,
                 const std::set<std::string>& changed) {
  if (o.kind.empty()) {
    p.check(false, "model.kind is missing; one of " + join(known));
  } else {
    p.one_of("model.kind", o.kind, known);
  }
  p.sizes("model.hidden", o.hidden);
  p.sizes("model.channels", o.channels);
  p.check(o.kind != "convnet" || !o.channels.empty(),
          "model.channels is empty; a convnet needs a stage");
  p.one_of("model.norm", o.norm, {"group", "batch", "none"});
  p.one_of("model.activation", o.activation, {"relu", "gelu", "tanh"});
  p.one_of("model.loss", o.loss, {"cross_entropy", "bce", "mse", "l1"});
  p.within("model.dropout", o.dropout, 0, 1, false);
  p.within("model.label_smoothing", o.label_smoothing, 0, 1, false);
  p.check(o.label_smoothing == 0 || o.loss == "cross_entropy",
          "model.label_smoothing needs model.loss = \"cross_entropy\", not \"" + o.loss + "\"");
  p.within("model.outputs", static_cast<double>(o.outputs), 0, kAbsurdWidth, false);
  // A registered kind may read any of them.
  if (o.kind == "mlp") {
    p.unused(changed, "model.", {"channels", "norm", "options"}, "model.kind", o.kind);
  }
  if (o.kind == "convnet") {
    p.unused(changed, "model.", {"hidden", "options"}, "model.kind", o.kind);
  }
}

void check_source(Problems& p, const std::string& section, const SourceOptions& o,
                  const ModelOptions& model, const std::set<std::string>& changed) {
  const auto unused = [&](const std::vector<std::string>& keys) {
    p.unused(changed, section, keys, section + "kind", o.kind);
  };
  p.one_of(section + "kind", o.kind, {"csv", "tensors", "synthetic"});
  if (o.kind == "csv" || o.kind == "tensors") {
    p.check(!o.path.empty(), section + "path is missing; name the " + o.kind + " file");
    unused({"fields", "samples"});
  }
  if (o.kind == "tensors" || o.kind == "synthetic") {
    unused({"label", "label_type", "shape", "scale", "offset"});
    if (o.kind == "synthetic") unused({"classes"});
  }
  if (o.kind == "synthetic") {
    unused({"path"});
    p.check(!o.fields.empty(),
            section +
                "fields is missing; for example [\"inputs: float[64] in [-1, 1]\", "
                "\"labels: int[] in [0, 9]\"]");
    p.count(section + "samples", o.samples, 1);
  }
  p.sizes(section + "shape", o.shape);
  p.one_of(section + "label_type", o.label_type, {"class", "value"});
  p.within(section + "classes", static_cast<double>(o.classes), 0, kAbsurdWidth, false);
  p.check(o.scale != 0 && std::isfinite(o.scale),
          section + "scale is " + to_text(o.scale) + "; it must be finite and not 0");
  p.check(std::isfinite(o.offset), section + "offset is " + to_text(o.offset) + "; give a number");
  p.check(o.kind != "csv" || o.label_type != "value" || model.loss != "cross_entropy",
          section +
              "label_type \"value\" does not go with model.loss \"cross_entropy\"; take "
              "mse, l1 or bce");
  p.check(o.label_type != "value" || o.classes == 0,
          section + "classes has no meaning for " + section + "label_type \"value\"; drop it");
}

void check_data(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  const DataOptions& o = config.data;
  if (o.train.kind.empty()) {
    p.check(false, "data.train.kind is missing; one of csv, tensors, synthetic");
  } else {
    check_source(p, "data.train.", o.train, config.model, changed);
  }
  if (!o.eval.kind.empty()) {
    check_source(p, "data.eval.", o.eval, config.model, changed);
  } else {
    for (const auto& key : changed) {
      p.check(key.rfind("data.eval.", 0) != 0, key + " is set, data.eval.kind is not; set it too");
    }
  }
  p.within("data.workers", static_cast<double>(o.workers), 0, 256, true);
  p.within("data.prefetch", static_cast<double>(o.prefetch), 1, 4096, true);
  p.one_of("data.last", o.last, {"keep", "drop"});
}

void check_batch(Problems& p, const BatchOptions& o) {
  p.count("batch.microbatch", o.microbatch, 0);
  if (o.global_batch == "epoch") return;
  int64_t size = 0;
  const bool fine = reads_as(o.global_batch, size) && size > 0 && size < kAbsurd;
  p.check(fine, "batch.global_batch is \"" + o.global_batch +
                    "\"; give a positive whole number or \"epoch\"");
  p.check(!fine || o.microbatch <= size, "batch.microbatch " + to_text(o.microbatch) +
                                             " is larger than batch.global_batch " + to_text(size) +
                                             "; lower it");
}

void check_precision(Problems& p, const PrecisionOptions& o) {
  p.one_of("precision.mode", o.mode, {"auto", "fp32", "bf16", "fp16", "fp64"});
  p.one_of("precision.loss_scale", o.loss_scale, {"auto", "dynamic", "static", "none"});
  p.one_of("precision.matmul", o.matmul, {"highest", "high", "medium"});
  double scale = 0;
  p.check(
      o.initial_scale == "auto" || (reads_as(o.initial_scale, scale) && scale > 0 && scale < 1e38),
      "precision.initial_scale is \"" + o.initial_scale +
          "\"; give a positive number below 1e38 or \"auto\"");
  p.check(o.initial_scale != "auto" || o.loss_scale != "static",
          "precision.initial_scale \"auto\" needs a dynamic loss scale; give a number");
  p.check(o.growth_factor > 1 && o.growth_factor <= 65536,
          "precision.growth_factor is " + to_text(o.growth_factor) + "; it must lie in (1, 65536]");
  p.check(o.backoff_factor > 0 && o.backoff_factor < 1,
          "precision.backoff_factor is " + to_text(o.backoff_factor) + "; it must lie in (0, 1)");
  p.count("precision.growth_interval", o.growth_interval, 1);
  p.positive("precision.min_scale", o.min_scale);
  p.check(!(scale > 0) || !(o.min_scale > scale), "precision.min_scale " + to_text(o.min_scale) +
                                                      " is above precision.initial_scale " +
                                                      o.initial_scale + "; lower it");
  p.check(o.mode != "fp64" || o.loss_scale == "auto" || o.loss_scale == "none",
          "precision.loss_scale \"" + o.loss_scale +
              "\" makes no sense with precision.mode \"fp64\"; drop it");
}

void check_optimizer(Problems& p, const OptimizerOptions& o, const std::set<std::string>& changed) {
  p.one_of("optimizer.kind", o.kind, {"adamw", "sgd"});
  p.check(o.learning_rate > 0 && o.learning_rate < 1e6, "optimizer.learning_rate is " +
                                                            to_text(o.learning_rate) +
                                                            "; it must be positive and below 1e6");
  p.not_negative("optimizer.weight_decay", o.weight_decay);
  p.within("optimizer.beta1", o.beta1, 0, 1, false);
  p.within("optimizer.beta2", o.beta2, 0, 1, false);
  p.positive("optimizer.eps", o.eps);
  p.within("optimizer.momentum", o.momentum, 0, 1, false);
  p.within("optimizer.dampening", o.dampening, 0, 1, true);
  p.check(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
          "optimizer.nesterov needs a momentum and no dampening");
  if (o.kind == "sgd") {
    p.unused(changed, "optimizer.", {"beta1", "beta2", "eps"}, "optimizer.kind", o.kind);
  }
  if (o.kind == "adamw") {
    p.unused(changed, "optimizer.", {"momentum", "dampening", "nesterov"}, "optimizer.kind",
             o.kind);
  }
  for (size_t i = 0; i < o.groups.size(); ++i) {
    const auto& group = o.groups[i];
    const std::string name = "optimizer.groups[" + std::to_string(i) + "]";
    p.check(!group.parameters.empty(), name + " has no parameters; give it patterns");
    p.not_negative(name + ".learning_rate_scale", group.learning_rate_scale.value_or(0));
    p.not_negative(name + ".weight_decay", group.weight_decay.value_or(0));
  }
}

void check_metrics(Problems& p, const EvaluateOptions& o) {
  std::set<std::string> seen;
  for (const auto& metric : o.metrics) {
    p.check(top_k_of(metric) > 0,
            "evaluate.metrics has \"" + metric + "\"; known are accuracy and top<k> (top5)");
    p.check(seen.insert(metric).second, "evaluate.metrics has \"" + metric + "\" twice; drop one");
  }
}

}  // namespace

int64_t top_k_of(const std::string& metric) {
  if (metric == "accuracy") return 1;
  int64_t k = 0;
  return metric.rfind("top", 0) == 0 && reads_as(metric.substr(3), k) && k > 0 ? k : 0;
}

std::vector<std::string> validate(const RunConfig& config,
                                  const std::vector<std::string>& known_model_kinds) {
  Problems p;
  const std::set<std::string> changed = changed_keys(config);
  check_run(p, config.run);
  check_model(p, config.model, known_model_kinds, changed);
  check_data(p, config, changed);
  check_batch(p, config.batch);
  check_precision(p, config.precision);
  check_optimizer(p, config.optimizer, changed);
  p.one_of("schedule.kind", config.schedule.kind, {"constant", "linear", "cosine"});
  p.count("schedule.warmup_steps", config.schedule.warmup_steps, 0);
  p.within("schedule.final_fraction", config.schedule.final_fraction, 0, 1, true);
  p.not_negative("clip.norm", config.clip.norm);
  p.one_of("guard.nan_loss", config.guard.nan_loss, {"stop", "skip"});
  p.one_of("guard.nan_gradient", config.guard.nan_gradient, {"stop", "skip"});
  p.count("guard.max_skips", config.guard.max_skips, 1);
  p.count("evaluate.every", config.evaluate.every, 0);
  p.count("evaluate.batch", config.evaluate.batch, 0);
  check_metrics(p, config.evaluate);
  p.count("checkpoint.every", config.checkpoint.every, 0);
  p.count("checkpoint.keep", config.checkpoint.keep, 1);
  p.count("metrics.console_every", config.metrics.console_every, 1);
  return p.found;
}

}  // namespace tanren
