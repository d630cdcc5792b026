#include "tanren/config/validate.h"

#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/identity.h"
#include "tanren/config/problems.h"

namespace tanren {

namespace {

void check_run(Problems& p, const RunOptions& o) {
  p.check(o.steps || o.epochs, "run.steps and run.epochs are both missing; set one");
  p.check(!(o.steps && o.epochs),
          "run.steps and run.epochs are both set; keep one (--set run.epochs=none takes it back)");
  if (o.steps) p.count("run.steps", *o.steps, 1);
  if (o.epochs) p.count("run.epochs", *o.epochs, 1);
  if (o.stop_after) p.count("run.stop_after", *o.stop_after, 1);
  p.at_least("run.seed", o.seed, 0);
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

void check_all(Problems& p, const RunConfig& config, const KnownKinds& known) {
  const std::set<std::string> changed = changed_keys(config);
  check_run(p, config.run);
  check_model(p, config.model, known.models, changed);
  check_data(p, config, known.datasets, changed);
  check_batch(p, config.batch);
  check_precision(p, config.precision);
  check_optimizer(p, config, changed);
  p.one_of("guard.nan_loss", config.guard.nan_loss, {"stop", "skip"});
  p.one_of("guard.nan_gradient", config.guard.nan_gradient, {"stop", "skip"});
  p.count("guard.max_skips", config.guard.max_skips, 1);
  p.within("guard.spike_z", config.guard.spike_z, 0, 1e6, true);
  p.count("guard.spike_window", config.guard.spike_window, 2);
  if (config.guard.spike_z == 0) {
    p.unused(changed, "guard.", {"spike_window"}, "guard.spike_z", "0");
  }
  p.count("guard.growth_steps", config.guard.growth_steps, 0);
  p.one_of("memory.allocator", config.memory.allocator, {"auto", "cached", "default"});
  p.one_of("memory.release_cache", config.memory.release_cache, {"never", "pressure", "step"});
  p.one_of("memory.recovery", config.memory.recovery, {"auto", "split", "same_split", "off"});
  if (config.memory.limit != "auto" && config.memory.limit != "none") {
    const auto limit = parse_memory(config.memory.limit);
    p.check(limit.has_value(),
            "memory.limit \"" + config.memory.limit +
                "\" is no amount of memory; write bytes (\"8GiB\", \"500MB\"), a "
                "share in (0, 1) (\"0.5\"), none or auto");
  }
  check_parallel(p, config, changed);
  check_observation(p, config);
  check_selection(p, config, changed);
}

// A config in which no text is one of its allowed words, except possibly the text of `key`.
RunConfig with_one_word(const std::string& key, const std::string& word) {
  RunConfig config;
  visit_config(config, [&](const std::string& name, auto& member, const FieldInfo&) {
    if constexpr (std::is_same_v<decltype(member), std::string&>) member = name == key ? word : "?";
  });
  return config;
}

}  // namespace

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
  visit_config(config, [&](const std::string& key, auto& member, const FieldInfo&) {
    if constexpr (std::is_same_v<decltype(member), bool&>) p.words[key] = {"true", "false"};
  });
  return p.words;
}

}  // namespace tanren
