#include "tanren/config/validate.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/identity.h"
#include "tanren/config/metric_mode.h"
#include "tanren/config/problems.h"

#include <algorithm>

namespace tanren {

namespace {

void check_all(Problems& p, const RunConfig& config, const KnownKinds& known) {
  p.changed = changed_keys(config);
  check_run(p, config, known.accelerator);
  check_model(p, config.model, known.models);
  check_data(p, config, known.datasets);
  check_batch(p, config.batch);
  check_precision(p, config.precision);
  check_optimizer(p, config);
  check_schedule(p, config);
  check_clip(p, config.clip);
  check_objectives(p, config);
  check_guard(p, config.guard);
  check_memory(p, config.memory);
  check_parallel(p, config);
  check_evaluate(p, config.evaluate);
  check_checkpoint(p, config.checkpoint);
  check_metrics(p, config.metrics);
  check_generate(p, config.generate);
  check_predict(p, config.predict);
  check_quantize(p, config);
  check_best(p, config);
  check_early_stop(p, config);
  check_average(p, config);
  check_evaluated(p, config.evaluate);
  check_sweep(p, config, known.accelerator);
}

// A config in which no text is one of its allowed words, except possibly the text of `key`.
RunConfig with_one_word(const std::string& key, const std::string& word) {
  RunConfig config;
  for (const Field& field : fields_of(config)) {
    if (field.is<std::string>()) field.as<std::string>() = field.key == key ? word : "?";
  }
  return config;
}

}  // namespace

void check_steering(Problems& p, const RunConfig& config, const std::string& section,
                    const std::string& switch_key, const std::string& metric,
                    const std::string& mode) {
  const std::string needs = section + switch_key + " needs evaluations while training; ";
  if (!has_evaluation(config.data)) {
    p.check(false, needs + "add [data.eval] and set evaluate.every");
  } else {
    p.check(config.evaluate.every > 0, needs + "set evaluate.every");
  }
  check_metric(p, config, section, metric, mode);
}

void check_metric(Problems& p, const RunConfig& config, const std::string& section,
                  const std::string& metric, const std::string& mode) {
  const auto known = measured_values(config.evaluate);
  if (std::find(known.begin(), known.end(), metric) == known.end()) {
    const auto near = nearest(metric, known);
    p.check(
        false,
        fmt::format("{}metric \"{}\" is not measured; one of {}{}, or add it to evaluate.metrics",
                    section, metric, join(known), near.empty() ? "" : " (nearest: " + near + ")"));
  } else {
    p.check(mode != "auto" || lower_is_better(metric, mode).has_value(),
            section + "mode \"auto\" does not know whether a low " + metric +
                " is good; set it to min or max");
  }
}

std::vector<std::string> validate(const RunConfig& config, const KnownKinds& known) {
  Problems p;
  check_all(p, config, known);
  return p.found;
}

std::vector<std::pair<std::string, std::string>> meaningless_keys(const RunConfig& config,
                                                                  const KnownKinds& known) {
  Problems p;
  check_all(p, config, known);
  std::vector<std::pair<std::string, std::string>> keys;
  for (const auto& [key, because] : p.unused_keys) keys.emplace_back(key, because);
  return keys;
}

std::map<std::string, std::vector<std::string>> closed_sets(const KnownKinds& known) {
  Problems p;
  check_all(p, with_one_word("", ""), known);
  // Some keys are checked for some kinds only.
  for (const auto& [key, words] : std::map(p.words)) {
    if (key.size() < 5 || key.compare(key.size() - 5, 5, ".kind") != 0) continue;
    for (const auto& word : words) check_all(p, with_one_word(key, word), known);
  }
  RunConfig config;
  for (const Field& field : fields_of(config)) {
    if (field.is<bool>()) p.words[field.key] = {"true", "false"};
  }
  return p.words;
}

}  // namespace tanren
