#include "tanren/train/build.h"

#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/split_source.h"
#include "tanren/model/couples_samples.h"
#include "tanren/model/init.h"
#include "tanren/quantize/replaced.h"
#include "tanren/train/check_blocks.h"
#include "tanren/train/device.h"
#include "tanren/train/freezing.h"
#include "tanren/train/model_dtype.h"
#include "tanren/train/pipeline.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// The weights of convolutions, [out, in, height, width].
void lay_channels_last(torch::nn::Module& module) {
  for (at::Tensor& parameter : module.parameters()) {
    if (parameter.dim() != 4) continue;
    if (is_replaced(parameter)) {
      lay_replaced_channels_last(parameter);
      continue;
    }
    parameter.set_data(parameter.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

}  // namespace

Datasets open_datasets(const DataOptions& options, const DatasetRegistry& registry) {
  Datasets datasets;
  SourceOptions train_source = options.train, eval_source = options.eval;
  train_source.encoding = eval_source.encoding = options.encoding;
  train_source.cache = eval_source.cache = options.cache;
  if (options.split > 0) {
    train_source.split = options.split;
    SplitSource parts = open_split(registry, train_source, "data.train");
    datasets.train = std::move(parts.train);
    if (options.eval.kind.empty()) {
      datasets.eval = std::move(parts.eval);
      datasets.split = std::move(parts.how);
      return datasets;
    }
  } else {
    datasets.train = registry.open(train_source, "data.train");
  }
  const DataInfo train = datasets.train->info();
  if (!options.eval.kind.empty()) datasets.eval = registry.open(eval_source, "data.eval", &train);
  return datasets;
}

Task build_task(const RunConfig& config, const ModelRegistry& models, const Dataset& train,
                bool has_weights) {
  const MemoryScope memory(MemoryKind::weights);
  std::optional<NoInitScope> no_init;
  if (has_weights && models.makes_anew(config.model.kind)) no_init.emplace();
  at::manual_seed(static_cast<uint64_t>(config.run.seed));
  Task task = models.make(config.model, train.info());
  freeze(*task.module, config.model);
  return task;
}

TensorMap tensors_of(const torch::nn::Module& module) {
  TensorMap tensors;
  for (const auto& item : module.named_parameters()) tensors.set(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.set(item.key(), item.value());
  return tensors;
}

void profile_parameters(const torch::nn::Module& module, ModelProfile& profile) {
  const auto norms = batch_norm_tensors(module);
  std::unordered_map<const at::TensorImpl*, std::string> firsts;
  for (const auto& item : module.named_parameters()) {
    const at::Tensor& parameter = item.value();
    const bool trained = parameter.requires_grad();
    profile.num_parameters += parameter.numel();
    profile.num_trainable += trained ? parameter.numel() : 0;
    const auto [first, is_first] = firsts.try_emplace(parameter.unsafeGetTensorImpl(), item.key());
    profile.parameters.push_back({.name = item.key(),
                                  .shape = parameter.sizes().vec(),
                                  .trained = trained,
                                  .batch_norm = norms.count(item.key()) > 0,
                                  .first = is_first ? "" : first->second});
  }
  profile.still = still_modules(module);
}

void profile_objectives(const Task& task, ModelProfile& profile) {
  const auto names = task.module->named_parameters().keys();
  for (const PhaseSpec& phase : task.phases) {
    for (const ObjectiveSpec& objective : phase.objectives) {
      auto& facts = profile.objectives.emplace_back();
      facts.name = objective.name;
      facts.phase = phase.name;
      facts.every = objective.every;
      for (const WeightedTerm& term : objective.terms) {
        facts.terms.push_back(term.name);
        facts.weights.push_back(term.weight);
      }
      std::copy_if(names.begin(), names.end(), std::back_inserter(facts.parameters),
                   [&](const auto& name) { return matches_any(objective.parameters, name); });
    }
  }
}

ModelProfile profile(const Task& task, const Datasets& datasets) {
  ModelProfile profile;
  profile_parameters(*task.module, profile);
  profile_objectives(task, profile);
  profile.couples_samples = couples_samples(task);
  profile.torch_dropout = torch_dropout(task);
  profile.graph = task.facts.graph;
  profile.metrics = task.metrics;
  profile.classes = task.classes;
  profile.train_samples = datasets.train->size();
  const DataInfo info = datasets.train->info();
  profile.input_shape = info.input_shape;
  profile.tokens = info.vocab_size > 0;
  profile.class_names = info.class_names;
  profile.split = datasets.split;
  if (datasets.eval) profile.eval_samples = datasets.eval->size();
  return profile;
}

Parts build_parts(const Plan& plan, const std::atomic<bool>* stop,
                  const AcceleratorKind& accelerators) {
  if (plan.memory.limit_share > 0) accelerators.limit(plan.memory.limit_share);
  const at::Device device = apply_device_plan(plan);
  return Parts{.plan = plan,
               .device = device,
               .stop = stop,
               .recovery = std::make_shared<Recovery>(plan.memory, device)};
}

RunState build_run_state(Task task, const Parts& parts, bool trains) {
  const MemoryScope memory(MemoryKind::weights);
  move_module(*task.module, parts.device, parts.plan.precision);
  if (parts.plan.memory.channels_last) lay_channels_last(*task.module);
  if (parts.stage) {
    check_can_be_staged(task, parts.plan);
    check_outermost_blocks(parts.plan.memory, parts.stage->blocks.blocks);
    drop_others(*task.module, *parts.stage);
  }
  RunState run;
  run.phases = make_phases(task, parts.plan, trains, parts.stage);
  run.stage = parts.stage;
  run.task = std::move(task);
  run.seed = static_cast<uint64_t>(parts.plan.run.seed);
  run.microbatch = parts.plan.batch.microbatch;
  return run;
}

}  // namespace tanren
