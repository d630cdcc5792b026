// run_block: the one hook inside a model. A model wraps each block's computation in it; recompute,
// offload, stages, per-block time and memory attach here, so a model needs no change to get them.
// Invariant: the result is fn's, unless the block belongs to another stage (stage.h): then fn is
// not called. It reports the block's name to the step's trail (block_trail.h) and to a profiler, if
// one listens; otherwise it costs a check of four flags. Thread-safe.
#pragma once

#include "tanren/blocks/block_trail.h"
#include "tanren/blocks/offload.h"
#include "tanren/blocks/recompute.h"
#include "tanren/blocks/stage.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <string_view>
#include <utility>
#include <vector>

namespace tanren {

// Calls fn(). A profiler shows the call under `name`, and gets its result if it asks for outputs.
template <class F>
at::Tensor profiled(std::string_view name, F&& fn) {
  if (!at::hasCallbacks()) return std::forward<F>(fn)();
  at::RecordFunction scope(at::RecordScope::USER_SCOPE);
  if (scope.isActive()) scope.before(name);
  at::Tensor result = std::forward<F>(fn)();
  if (scope.needsOutputs()) scope.setOutputs(std::vector<c10::IValue>{result});
  return result;
}

// Calls `fn() -> at::Tensor` as the block called `name` (its path in the module: "stages.0").
template <class F>
at::Tensor run_block(std::string_view name, F&& fn) {
  const auto run = [&] {
    const BlockScope block(name);
    const OffloadBlock offload(name);
    return profiled(name, std::forward<F>(fn));
  };
  return StageScope::is_open() ? StageScope::pass(name, run) : run();
}

// The same for `fn(input)`, which may be recomputed: then `fn` is called again in backward, after
// the forward has returned. `fn` must therefore capture by value everything that does not outlive
// the forward, especially other tensors. Apart from `input` and parameters it must use no tensor
// that needs a gradient. `module` holds every buffer that fn changes (batch norm's statistics);
// null: any buffer of the model may change, which costs a copy of all of them.
template <class F>
at::Tensor run_block(std::string_view name, const at::Tensor& input,
                     const torch::nn::Module* module, F&& fn) {
  const auto run = [&] {
    const BlockScope block(name, /*can_recompute=*/true);
    return profiled(name, [&] {
      if (RecomputeScope::wants(name)) return run_recomputed(input, fn, module);
      const OffloadBlock offload(name);
      return fn(input);
    });
  };
  return StageScope::is_open() ? StageScope::pass(name, run) : run();
}

template <class F>
at::Tensor run_block(std::string_view name, const at::Tensor& input, F&& fn) {
  return run_block(name, input, nullptr, std::forward<F>(fn));
}

}  // namespace tanren
