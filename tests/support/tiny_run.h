// Small single-threaded runs for the whole-run tests: config → plan → state in one line, planned
// for a default Machine with the accelerators of this one.
#pragma once

#include "tanren/base/device_reads.h"
#include "tanren/data/loader.h"
#include "tanren/model/couples_samples.h"
#include "tanren/model/registry.h"
#include "tanren/plan/planner.h"
#include "tanren/train/build.h"
#include "tanren/train/device.h"
#include "tanren/train/train_step.h"
#include "tests/support/test_device.h"

#include <ATen/ATen.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren::testing {

// `words`: a mode ("bf16"), or a level and a mode ("O2 bf16").
inline void set_precision(RunConfig& config, const std::string& words) {
  const size_t space = words.find(' ');
  config.precision.mode = space == std::string::npos ? words : words.substr(space + 1);
  config.precision.level = space == std::string::npos ? "" : words.substr(0, space);
}

inline RunConfig tiny_config(const std::string& kind) {
  RunConfig config;
  config.run.steps = 100;
  config.run.threads = 1;
  config.run.device = test_device();
  config.run.deterministic = test_device().starts_with("cuda");  // what the tests promise bitwise
  config.run.seed = 7;
  config.model.kind = kind;
  if (kind == "mlp") config.model.hidden = {16, 16};
  if (kind == "convnet") config.model.channels = {4, 8};
  config.data.train.kind = "synthetic";
  config.data.train.fields = {"inputs: float[1,8,8] in [-1, 1]", "labels: int[] in [0, 4]"};
  config.data.train.samples = 64;
  config.data.workers = 0;
  config.batch.global_batch = "30";
  config.precision.mode = "fp64";
  config.optimizer.learning_rate = 0.01;
  return config;
}

// A run that a test drives update by update.
struct TinyRun {
  std::unique_ptr<Dataset> owned;
  const Dataset* dataset;
  Parts parts;
  RunState state;
  std::unique_ptr<Loader> loader;

  explicit TinyRun(const RunConfig& config) : TinyRun(config, nullptr, std::nullopt) {}

  // Uses the given dataset and task; those that are null are made from the config.
  TinyRun(const RunConfig& config, const Dataset* own_data, std::optional<Task> own_task) {
    if (own_data == nullptr) owned = open_dataset(config.data.train, "data.train");
    dataset = own_data != nullptr ? own_data : owned.get();
    Task task = own_task ? *own_task : build_task(config, ModelRegistry(), *dataset);
    ModelProfile profile;
    profile_parameters(*task.module, profile);
    profile_objectives(task, profile);
    profile.train_samples = dataset->size();
    profile.metrics = task.metrics;
    profile.classes = task.classes;
    profile.couples_samples = couples_samples(task);
    Machine machine;
    probe_accelerators(machine, config.run.device, test_accelerators());
    parts = build_parts(make_plan(config, machine, profile), nullptr);
    state = build_run_state(std::move(task), parts);
    use_loader(0, 1);
  }

  // A loader at the state's cursor, its threads started at once.
  void use_loader(int64_t workers, int64_t prefetch) {
    LoaderOptions options;
    options.global_batch = parts.plan.batch.global_batch;
    options.shuffle = parts.plan.data.shuffle;
    options.keep_last = parts.plan.batch.keep_last;
    options.seed = state.seed;
    options.workers = workers;
    options.prefetch = prefetch;
    options.patience_seconds = 0;
    loader = std::make_unique<Loader>(*dataset, options, Cursor{state.epoch, state.consumed});
  }

  StepReport step() { return step(loader->next()); }
  StepReport step(const GlobalBatch& batch) { return *update(state, parts, batch); }
  std::vector<StepReport> steps(int count) {
    std::vector<StepReport> reports;
    reports.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) reports.push_back(step());
    return reports;
  }
  // All weights in one vector, a copy.
  at::Tensor weights() const {
    std::vector<at::Tensor> all;
    for (const auto& p : state.task.module->parameters()) all.push_back(p.detach().flatten());
    return at::cat(all).to(at::kCPU, /*non_blocking=*/false, /*copy=*/true);
  }
  at::Tensor gradients() const {
    return at::cat(state.phases.front().objectives.front().gradients.flat()).clone().cpu();
  }
  Objective& objective() { return state.phases.front().objectives.front(); }
};

inline double relative(const at::Tensor& a, const at::Tensor& b) {
  return ((a.cpu() - b.cpu()).norm() / b.cpu().norm()).item<double>();
}

}  // namespace tanren::testing
