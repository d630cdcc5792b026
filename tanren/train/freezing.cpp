#include "tanren/train/freezing.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/quantize/quantized_names.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <unordered_map>

namespace tanren {

namespace {

bool has_trained(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

// Names of all modules, except the root, that have parameters but train none of them.
std::set<std::string> frozen_whole(const torch::nn::Module& root) {
  std::set<std::string> names;
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    const auto& module = *item.value();
    if (!module.parameters().empty() && !has_trained(module)) names.insert(item.key());
  }
  return names;
}

void make_still(torch::nn::Module& root, const std::set<std::string>& names) {
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (names.count(item.key()) > 0) item.value()->train(false);
  }
}

// The names of the scales that the inputs of all matrices could get.
std::vector<std::string> possible_scales(const torch::nn::Module& module) {
  std::vector<std::string> scales;
  for (const auto& item : module.named_parameters()) {
    if (item.value().dim() > 1) scales.push_back(quantized_names(item.key()).input_scale);
  }
  return scales;
}

using Names = std::vector<std::string>;  // of one parameter

std::vector<Names> names_by_parameter(const torch::nn::Module& module) {
  std::vector<Names> all;
  std::unordered_map<const at::TensorImpl*, size_t> places;
  for (const auto& item : module.named_parameters()) {
    const auto [place, is_new] = places.try_emplace(item.value().unsafeGetTensorImpl(), all.size());
    if (is_new) all.emplace_back();
    all[place->second].push_back(item.key());
  }
  return all;
}

[[noreturn]] void refuse_table(const UnfreezeOptions& table, const char* why) {
  throw ConfigError(fmt::format("[model] unfreeze {} at step {}: {}", join(table.parameters),
                                to_text(*table.step), why));
}

// `scales`: names that patterns may also match. `led`: as in check_freezing.
void check_patterns(const ModelOptions& options, const torch::nn::Module& module,
                    const std::vector<std::string>& scales, const std::set<std::string>& led) {
  const std::vector<std::string> names = module.named_parameters().keys();
  const auto check = [&](const char* key, std::vector<std::string> patterns) {
    std::erase_if(patterns, [&](const std::string& pattern) {
      return std::any_of(scales.begin(), scales.end(),
                         [&](const std::string& scale) { return matches(pattern, scale); });
    });
    check_matches(key, patterns, names);
  };
  std::vector<Names> all = names_by_parameter(module);
  for (const std::string& scale : scales) all.push_back({scale});
  check("[model] freeze", options.freeze);
  for (const auto& table : options.unfreeze) {
    check("[model] unfreeze", table.parameters);
    bool frees = false, names_led = false;
    for (const Names& own : all) {
      if (!matches_any(table.parameters, own) || !matches_any(options.freeze, own)) continue;
      (led.count(own.front()) > 0 ? names_led : frees) = true;
    }
    if (frees) continue;
    if (names_led) {
      refuse_table(table,
                   "the scale of an input is unfrozen with its weight, unless a pattern of "
                   "model.freeze is of the scale alone; name the weight, or add such a pattern");
    }
    refuse_table(table, "model.freeze holds none of these parameters; drop it, or freeze them");
  }
}

bool trained_from_start(const ModelOptions& options, const Names& names) {
  return std::any_of(options.unfreeze.begin(), options.unfreeze.end(), [&](const auto& table) {
    return table.step == 0 && matches_any(table.parameters, names);
  });
}

}  // namespace

int64_t freeze(torch::nn::Module& module, const ModelOptions& options) {
  if (options.freeze.empty()) return 0;
  auto parameters = module.named_parameters();
  check_patterns(options, module, possible_scales(module), /*led=*/{});
  int64_t frozen = 0;
  for (const Names& names : names_by_parameter(module)) {
    if (!matches_any(options.freeze, names) || trained_from_start(options, names)) continue;
    parameters[names.front()].set_requires_grad(false);
    ++frozen;
  }
  if (!has_trained(module)) {
    throw ConfigError(
        "[model] freeze leaves no parameter to train at step 0; freeze less, or except some with "
        "[[model.unfreeze]] step = 0");
  }
  make_still(module, frozen_whole(module));
  return frozen;
}

void check_freezing(const torch::nn::Module& module, const ModelOptions& options,
                    const std::set<std::string>& led) {
  if (!options.freeze.empty()) check_patterns(options, module, /*scales=*/{}, led);
}

std::optional<bool> trains_scale_alone(const ModelOptions& options, const std::string& scale,
                                       const std::vector<std::string>& weight) {
  if (!matches_alone(options.freeze, scale, weight)) return std::nullopt;
  return trained_from_start(options, {scale});
}

std::vector<std::string> still_modules(const torch::nn::Module& module) {
  std::vector<std::string> outermost;
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    const auto& child = *item.value();
    if (child.is_training() || child.parameters().empty() || has_trained(child)) continue;
    const bool inside = std::any_of(outermost.begin(), outermost.end(), [&](const auto& outer) {
      return item.key().rfind(outer + ".", 0) == 0;
    });
    if (!inside) outermost.push_back(item.key());
  }
  return outermost;
}

void unfreeze(RunState& run, const FreezePlan& plan, bool tells, Communicator* ranks) {
  const auto due =
      std::find_if(plan.unfreezes.begin(), plan.unfreezes.end(),
                   [&](const Unfreeze& unfreeze) { return unfreeze.step == run.step(); });
  if (due == plan.unfreezes.end()) return;
  auto& root = *run.task.module;
  const auto before = frozen_whole(root);
  auto parameters = root.named_parameters();
  int64_t elements = 0;
  for (const auto& name : due->parameters) {
    at::Tensor& parameter = parameters[name];
    if (parameter.requires_grad()) continue;
    parameter.set_requires_grad(true);
    elements += parameter.numel();
  }
  if (elements == 0) return;  // this step is tried again after a skipped update
  // Parents come first, so a module that stays frozen inside an unfrozen one is set back to eval
  // mode after its parent.
  const auto after = frozen_whole(root);
  for (const auto& item : root.named_modules("", /*include_self=*/false)) {
    if (before.count(item.key()) > 0) item.value()->train(after.count(item.key()) == 0);
  }
  for (auto& phase : run.phases) phase.choose_parameters(ranks);
  if (!tells) return;
  log(
      fmt::format("[train] {} steps are applied: {} tensors, {} parameters are unfrozen, their "
                  "optimizer state starts from 0",
                  to_text(due->step), to_text(std::ssize(due->parameters)), to_text(elements)));
}

}  // namespace tanren
