#include "tanren/config/sections/sweep.h"

#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/config/fields.h"
#include "tanren/config/objective_keys.h"
#include "tanren/config/problems.h"
#include "tanren/config/space_rules.h"
#include "tanren/config/synonyms.h"
#include "tanren/config/value_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

namespace tanren {

void fields(FieldList& add, DimensionOptions& o) {
  add("key", &o.key, Identity::free, "The key whose values are searched, such as model.hidden.");
  add("low", &o.low, Identity::free, "Lower end of a range, included.");
  add("high", &o.high, Identity::free, "Upper end of a range, included.");
  add("scale", &o.scale, Identity::free,
      "Scale on which a range is searched: linear, log (each power of ten equally).");
  add("whole", &o.whole, Identity::free,
      "true: only whole numbers of the range. Keys that take whole numbers get only these anyway.");
  add("points", &o.points, Identity::free,
      "sampler grid: number of values in the range, with both ends, ≥ 2.");
  add("values", &o.values, Identity::free,
      "Choices instead of a range, each as --set takes it (\"[64, 64]\" is a list).",
      TextKind::number_or_word);
  add("when", &o.when, Identity::free,
      "\"KEY=VALUE\": only trials whose KEY, another dimension, has VALUE have this dimension.");
}

void fields(FieldList& add, SweepOptions& o) {
  add("trials", &o.trials, Identity::free,
      "Trials that a sweep starts; pbt: its population. 0: all points of a grid.");
  add("metric", &o.metric, Identity::free,
      "Metric that ranks trials: loss, or one of evaluate.metrics, of the evaluation.");
  add("mode", &o.mode, Identity::free, "Direction of improvement: auto (by the metric), min, max.");
  add("sampler", &o.sampler, Identity::free,
      "Method that chooses the values of a trial: grid (all combinations), random, tpe (near those "
      "of good trials and far from those of bad ones).");
  add("scheduler", &o.scheduler, Identity::free,
      "Choice of the trials that continue: none (all), asha (the best at each rung, one of "
      "sweep.reduction), pbt (a population, whose worst quarter is replaced by changed copies of "
      "its best), external (another program decides and writes the journal, as tanren_ray does; "
      "tanren sweep reports).");
  add("first_rung", &o.first_rung, Identity::free,
      "asha: steps of the first rung, a multiple of evaluate.every; 0: evaluate.every. Each later "
      "rung has sweep.reduction times the steps.");
  add("reduction", &o.reduction, Identity::free,
      "asha: one of this many trials at a rung continues to the next, ≥ 2.");
  add("interval", &o.interval, Identity::free,
      "pbt: steps between exchanges, a multiple of evaluate.every; 0: evaluate.every.");
  add("concurrent", &o.concurrent, Identity::free,
      "Trials that run at the same time and share the cores and each device's memory; 0: one for "
      "each of sweep.devices, 1 without them.");
  add("devices", &o.devices, Identity::free,
      "Devices of the trials that run at a time, each as run.device; []: run.device for all.");
  add("timeout", &o.timeout, Identity::free,
      "Seconds without a log line and processor time after which a trial is ended; 0: never.");
  add("keep", &o.keep, Identity::free,
      "Number of best trials whose checkpoints and weights stay, ≥ 1; those of paused trials "
      "stay, too.");
  add("find", &o.find, Identity::free,
      "learning_rate: tanren sweep finds a learning rate by up to 100 updates in memory, without "
      "trials, from a config or a run folder.");
  add("confirm", &o.confirm, Identity::free,
      "Number of other seeds, ≥ 2, with which the best 3 trials and the file's own values run "
      "again at the end, to show how much of their difference is noise. 0: none.");
  add("space", &o.space, Identity::free,
      "Tables [[sweep.space]], one per dimension, for tanren sweep. tanren run ignores them and "
      "trains the config as it stands.");
}

namespace {

// Keys and sections that the sweep sets itself, or that would make trials incomparable.
constexpr std::string_view kNotForTrials[] = {
    "run.name",     "run.fork_from", "run.stop_after", "run.max_time", "run.device", "run.threads",
    "memory.limit", "metrics.",      "parallel.",      "sweep.",       "evaluate.",  "data.eval.",
    "data.split",   "checkpoint.",   "generate.",      "predict."};

bool may_not_have(std::string_view key) {
  return std::any_of(std::begin(kNotForTrials), std::end(kNotForTrials), [&](std::string_view no) {
    return no.back() == '.' ? key.starts_with(no) : key == no;
  });
}

constexpr double kMostAtATime = 512;
constexpr double kMostSeeds = 1000;

// Rates of a model. No tensor's shape depends on them.
constexpr std::string_view kRates[] = {"model.dropout",           "model.label_smoothing",
                                       "model.embedding_dropout", "model.attention_dropout",
                                       "model.residual_dropout",  "model.classifier_dropout"};

// A text that may be a number.
bool takes_number(const Field& field) {
  return field.is<std::string>() && field.info.text == TextKind::number_or_word;
}
bool is_real(const Field& field) { return field.is<double>() || field.is<std::optional<double>>(); }

// Keys that change how many steps an epoch has.
constexpr std::string_view kOfEpochs[] = {
    "batch.global_batch",   "data.last",          "data.train.kind",
    "data.train.path",      "data.train.samples", "data.train.only_classes",
    "data.train.context",   "data.train.stride",  "data.train.include",
    "data.train.exclude",   "data.train.part",    "data.train.document_end",
    "data.train.tokenizer", "data.train.broken"};

// Whether a checkpoint fits a run with another value of the key.
bool keeps_shapes(const Field& field) {
  const std::string key = field.key.substr(objective_prefix(field.key).size());
  if (key.starts_with("precision.")) return false;
  const bool is_rate = std::find(std::begin(kRates), std::end(kRates), key) != std::end(kRates);
  return is_rate || field.info.identity == Identity::on_request ||
         (key.starts_with("optimizer.") && is_real(field));
}

// An entry of a table is a key of its own: model.options.WIDTH, objectives.NAME.weights.TERM.
bool is_entry(const std::vector<Field>& fields, const std::string& key) {
  const Field* table = find_field(fields, key.substr(0, key.rfind('.')));
  return table != nullptr && (table->is<std::map<std::string, std::string>>() ||
                              table->is<std::map<std::string, double>>());
}

// Whether another value of the key makes an evaluation's loss another function.
bool changes_loss(std::string_view key) {
  const bool is_weight =
      key.starts_with("objectives.") && key.find(".weights.") != std::string_view::npos;
  return is_weight || key == "model.loss" || key == "model.label_smoothing";
}

// Whether the dimension has a number of 0 or less.
bool reaches_zero(const DimensionOptions& d) {
  if (d.low && *d.low <= 0) return true;
  return std::any_of(d.values.begin(), d.values.end(), [](const std::string& value) {
    double number = 0;
    return reads_as(value, number) && number <= 0;
  });
}

// Checks a dimension against the config, in addition to the rules of every space.
void check_dimension(Problems& p, const RunConfig& config, const DimensionOptions& d) {
  const std::string name = "sweep.space " + d.key;
  if (may_not_have(d.key)) {
    return p.check(false, name + ": a trial may not have this key; take it out of the space");
  }
  p.check(config.sweep.metric != "loss" || !changes_loss(d.key),
          name +
              " changes what the loss measures, which then ranks no trials; set sweep.metric "
              "to another of evaluate.metrics, or take the key out of the space");
  RunConfig copy = config;
  add_objective(copy, d.key);
  const std::vector<Field> fields = fields_of(copy);
  const Field* field = find_field(fields, d.key);
  if (field == nullptr) {
    return p.check(is_entry(fields, d.key),
                   name + ": there is no such key" + advice(d.key, keys_of(fields)));
  }
  p.check(config.sweep.confirm == 0 || d.key != "run.seed",
          name + ": sweep.confirm sets the seed; drop one of them");
  const bool is_range = d.low && d.high;
  p.check(!is_range || is_real(*field) || takes_whole_numbers(*field) || takes_number(*field),
          name + " takes " + type_text(*field) + ", which has no range; give values");
  // The rules of every space check the ends if the range itself asks for whole numbers.
  const bool has_whole_ends =
      !is_range || (std::floor(*d.low) == *d.low && std::floor(*d.high) == *d.high);
  p.check(!takes_whole_numbers(*field) || d.whole || has_whole_ends,
          name + " takes whole numbers; give whole ends");
  const SweepOptions& o = config.sweep;
  p.check(o.scheduler != "pbt" || keeps_shapes(*field),
          name +
              ": pbt goes on from another trial's checkpoint, which may not fit another value; "
              "take the key out, or sweep.scheduler = \"asha\"");
  const bool takes_momentum = d.key.ends_with("optimizer.momentum") && reaches_zero(d);
  p.check(o.scheduler != "pbt" || !takes_momentum,
          name + ": with pbt it must be above 0, for without momentum there is no state of it");
  const bool is_length = d.key == "run.steps" || d.key == "run.epochs";
  const bool is_of_epochs =
      config.run.epochs &&
      std::find(std::begin(kOfEpochs), std::end(kOfEpochs), d.key) != std::end(kOfEpochs);
  p.check(o.scheduler == "none" || !(is_length || is_of_epochs),
          name + " changes the steps of a trial, and sweep.scheduler \"" + o.scheduler +
              "\" needs the same for all; " +
              (is_of_epochs ? "set run.steps instead of run.epochs" : "take it out of the space"));
}

// Steps that must fall on evaluations. 0 stands for evaluate.every.
void check_on_evaluations(Problems& p, const RunConfig& config, const std::string& key,
                          int64_t steps) {
  p.count(key, steps, 0);
  const int64_t every = config.evaluate.every;
  p.check(every <= 0 || steps <= 0 || steps % every == 0,
          fmt::format("{} is {} and evaluate.every is {}; trials are judged by evaluations, so "
                      "take a multiple",
                      key, steps, every));
  const int64_t used = steps > 0 ? steps : every;
  p.check(!config.run.steps || used < *config.run.steps,
          fmt::format("{} is {} and run.steps is {}; no trial would be judged before its end", key,
                      used, config.run.steps.value_or(0)));
}

void check_scheduler(Problems& p, const RunConfig& config) {
  const SweepOptions& o = config.sweep;
  if (o.scheduler == "external") return;  // the other program reads the keys of its scheduler
  if (o.scheduler == "asha") {
    check_on_evaluations(p, config, "sweep.first_rung", o.first_rung);
    p.within("sweep.reduction", static_cast<double>(o.reduction), 2, 1024, true);
  } else {
    p.unused("sweep.", {"first_rung", "reduction"}, "sweep.scheduler", o.scheduler);
  }
  if (o.scheduler == "pbt") {
    check_on_evaluations(p, config, "sweep.interval", o.interval);
    p.check(o.trials >= 2, fmt::format("sweep.trials is {}; pbt needs 2 or more", o.trials));
    p.check(config.early_stop.patience == 0,
            "sweep.scheduler \"pbt\" forks trials at its exchanges, where one that early_stop has "
            "ended before has no checkpoint; set early_stop.patience = 0");
  } else {
    p.unused("sweep.", {"interval"}, "sweep.scheduler", o.scheduler);
  }
}

}  // namespace

void check_sweep(Problems& p, const RunConfig& config, const std::string& accelerator) {
  const SweepOptions& o = config.sweep;
  p.one_of("sweep.sampler", o.sampler, {"grid", "random", "tpe"});
  p.one_of("sweep.scheduler", o.scheduler, {"none", "asha", "pbt", "external"});
  p.one_of("sweep.mode", o.mode, {"auto", "min", "max"});
  p.count("sweep.trials", o.trials, 0);
  p.within("sweep.concurrent", static_cast<double>(o.concurrent), 0, kMostAtATime, true);
  p.count("sweep.timeout", o.timeout, 0);
  p.count("sweep.keep", o.keep, 1);
  if (!o.find.empty()) p.one_of("sweep.find", o.find, {"learning_rate"});
  p.within("sweep.confirm", static_cast<double>(o.confirm), 0, kMostSeeds, true);
  p.check(o.confirm != 1, "sweep.confirm is 1, and noise is seen from 2 seeds on; set it to 3");
  p.check(o.confirm == 0 || o.scheduler != "pbt",
          "sweep.confirm repeats whole runs of one set of values, and the best of pbt changed its "
          "values on the way; drop it, or sweep.scheduler = \"asha\"");
  for (const std::string& name : o.devices) {
    const auto device = read_device_name(name);
    const bool is_there = device && device->kind == accelerator && device->index >= 0;
    if (!is_there) p.one_of("sweep.devices", name, {"cpu", device_name(accelerator, 0)});
  }
  if (o.space.empty()) {
    for (const std::string& key : p.changed) {
      p.check(!key.starts_with("sweep.") || key == "sweep.find",
              key + " has no meaning without [[sweep.space]]; add tables, or drop it");
    }
    return;
  }
  p.check(o.trials > 0 || o.sampler == "grid",
          "sweep.trials is 0, which stands for all points of a grid; set it");
  for (const auto& [key, what] : space_problems(o.space)) {
    p.check(false, "sweep.space" + (key.empty() ? "" : " " + key) + ": " + what);
  }
  for (const DimensionOptions& dimension : o.space) {
    if (!dimension.key.empty()) check_dimension(p, config, dimension);
    const bool is_range = dimension.values.empty();
    p.check(o.sampler != "grid" || !is_range || dimension.points,
            "sweep.space " + dimension.key + ": a range in a grid needs points");
    p.check(o.sampler == "grid" || !is_range || !dimension.points,
            "sweep.space " + dimension.key + ": points are of sampler grid; drop them");
  }
  check_scheduler(p, config);
  if (o.scheduler == "asha" || o.scheduler == "pbt") {
    check_steering(p, config, "sweep.", "scheduler", o.metric, o.mode);
  } else {
    p.check(has_evaluation(config.data),
            "sweep.space needs evaluations, which rank the trials; add [data.eval]");
    check_metric(p, config, "sweep.", o.metric, o.mode);
  }
}

}  // namespace tanren
