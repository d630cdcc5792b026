// A run's events other than plain updates: an fp16 overflow, a skip, an evaluation, a checkpoint.
// For tests that let memory run out in each of them.
#pragma once

#include "tanren/base/memory_tag.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/train_loop.h"
#include "tests/support/tiny_run.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <vector>

namespace tanren::testing {

// A small convolutional network with batch norm, in fp16; each microbatch keeps its split.
inline RunConfig eventful_config() {
  auto config = tiny_config("convnet");
  config.model.norm = "batch";
  config.model.channels = {4};
  config.data.train.samples = 16;
  config.batch.global_batch = "4";
  config.precision.mode = "fp16";
  config.guard.nan_loss = "skip";
  config.memory.recovery = "same_split";
  config.memory.limit = "8GiB";  // installs our allocator, under a sanitizer too
  return config;
}

struct Events {
  GlobalBatch overflows, is_skipped, is_applied;
  Cause skipped = Cause::nan_loss;
};

// The batches of the three updates; `next` returns the next batch of a TinyRun or a RankRun.
template <class Next>
Events events_of(const Next& next) {
  Events events{next(), next(), next()};
  Batch& batch = events.is_skipped.local;
  const at::Tensor inputs = batch["inputs"];
  if (!inputs.is_floating_point()) {  // token ids: a batch of which no label counts
    batch.fields.set("labels", at::full_like(batch["labels"], -100));
    events.is_skipped.counts["tokens"] = 0;
    events.skipped = Cause::nothing_counted;
    return events;
  }
  batch.fields.set("inputs", at::full_like(inputs, std::numeric_limits<float>::infinity()));
  return events;
}

inline const Dataset& dataset_of(const TinyRun& run) { return *run.dataset; }

// Goes through the events and returns the evaluation's loss. The checkpoint is under `folder`.
template <class Run>
double go_through(Run& run, const Events& events, const std::filesystem::path& folder) {
  // As in train_loop: only microsteps and evaluations may run out.
  const MustSucceedScope must_succeed;
  const DeviceRetryScope retries(run.parts.recovery->reserve());
  const Dataset* data = &dataset_of(run);
  const double scale = run.objective().scaler.scale();
  run.objective().scaler.set_searched(0x1p60);
  const auto overflow = update(run.state, run.parts, events.overflows);
  EXPECT_EQ(overflow->objectives[0].verdict.cause, Cause::overflow);
  run.objective().scaler.set_searched(scale);
  const auto skip = update(run.state, run.parts, events.is_skipped);
  EXPECT_EQ(skip->objectives[0].verdict.cause, events.skipped);
  const auto applied = update(run.state, run.parts, events.is_applied);
  EXPECT_EQ(applied->objectives[0].verdict.action, Action::apply);
  EXPECT_EQ(applied->attempt - applied->step, 2);
  const EvaluationReport evaluation = evaluate(run.state, run.parts, *data);
  const LoopInputs inputs{.train = *data, .checkpoints = folder};
  save_checkpoint(run.state, run.parts, inputs);
  return evaluation.values.front().second;
}

// Expects the newest checkpoint under `folder` to hold the weights and buffers of `state`.
inline void expect_stored(const RunState& state, const std::filesystem::path& folder) {
  const auto latest = latest_checkpoint(folder);
  ASSERT_TRUE(latest.has_value());
  const Snapshot stored = read_checkpoint(*latest);
  for (const auto& [name, tensor] : state.model_tensors()) {
    EXPECT_TRUE(at::equal(stored.model.tensors.at(name), tensor.cpu())) << name;
  }
}

}  // namespace tanren::testing
