#include "tanren/train/freezing.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/quantize/quantized_names.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <set>

namespace tanren {

namespace {

bool has_trained(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& parameter) { return parameter.requires_grad(); });
}

// Names of all modules but the root that have parameters and train none of them.
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

// Of the inputs of all matrices.
std::vector<std::string> possible_scales(const torch::nn::Module& module) {
  std::vector<std::string> scales;
  for (const auto& item : module.named_parameters()) {
    if (item.value().dim() > 1) scales.push_back(quantized_names(item.key()).input_scale);
  }
  return scales;
}

// `scales`: what patterns may match, too.
void check_patterns(const ModelOptions& options, const std::vector<std::string>& names,
                    const std::vector<std::string>& scales) {
  const auto check = [&](const char* key, std::vector<std::string> patterns) {
    std::erase_if(patterns, [&](const std::string& pattern) {
      return std::any_of(scales.begin(), scales.end(),
                         [&](const std::string& scale) { return matches(pattern, scale); });
    });
    check_matches(key, patterns, names);
  };
  std::vector<std::string> all = names;
  all.insert(all.end(), scales.begin(), scales.end());
  check("[model] freeze", options.freeze);
  for (const auto& table : options.unfreeze) {
    check("[model] unfreeze", table.parameters);
    const bool frees = std::any_of(all.begin(), all.end(), [&](const auto& name) {
      return matches_any(table.parameters, name) && matches_any(options.freeze, name);
    });
    if (!frees) {
      throw ConfigError(
          fmt::format("[model] unfreeze {} at step {}: model.freeze holds none of these "
                      "parameters; drop it, or freeze them",
                      join(table.parameters), to_text(*table.step)));
    }
  }
}

bool trained_from_start(const ModelOptions& options, const std::string& name) {
  return std::any_of(options.unfreeze.begin(), options.unfreeze.end(), [&](const auto& table) {
    return table.step == 0 && matches_any(table.parameters, name);
  });
}

}  // namespace

int64_t freeze(torch::nn::Module& module, const ModelOptions& options) {
  if (options.freeze.empty()) return 0;
  auto parameters = module.named_parameters();
  check_patterns(options, parameters.keys(), possible_scales(module));
  int64_t frozen = 0;
  for (auto& item : parameters) {
    if (!matches_any(options.freeze, item.key())) continue;
    if (trained_from_start(options, item.key())) continue;
    item.value().set_requires_grad(false);
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

void check_freezing(const torch::nn::Module& module, const ModelOptions& options) {
  if (!options.freeze.empty()) check_patterns(options, module.named_parameters().keys(), {});
}

bool freezes_scale_alone(const ModelOptions& options, const std::string& scale,
                         const std::string& weight) {
  return matches_alone(options.freeze, scale, weight) && !trained_from_start(options, scale);
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
  // Parents come first, so what stays frozen inside an unfrozen module is set back after its
  // parent.
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
