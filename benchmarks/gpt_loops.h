// A careful hand-written training loop for a GPT, on tanren's module and batches.
#pragma once

#include "tanren/base/random.h"
#include "benchmarks/paired.h"
#include "benchmarks/tanren_step.h"
#include "tests/support/token_data.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

namespace tanren::bench {

// Four layers, 256 wide, context 128, dropout 0.1; 16 samples an update.
inline RunConfig small_gpt(int64_t threads, const std::string& mode, int64_t microbatch) {
  RunConfig config;
  config.run.steps = 1000000;
  config.run.threads = threads;
  config.run.device = "cpu";
  config.model.kind = "gpt2";
  config.model.num_layers = 4;
  config.model.num_heads = 4;
  config.model.hidden_size = 256;
  config.model.context_length = 128;
  config.precision.mode = mode;
  config.batch.global_batch = "16";
  config.batch.microbatch = microbatch;
  config.clip.norm = 1.0;
  return config;
}

// Mean seconds of a step over all batches.
template <typename Loop>
auto block_of(Loop& loop, const std::vector<GlobalBatch>& batches) {
  return [&loop, &batches] {
    const double all = seconds([&] {
      for (const auto& batch : batches) loop.step(batch);
    });
    return all / static_cast<double>(batches.size());
  };
}

class HandGpt {
 public:
  HandGpt(const RunConfig& config, const Dataset& data)
      : task_(build_task(config, ModelRegistry(), data)),
        parameters_(task_.module->parameters()),
        microbatch_(config.batch.microbatch),
        bf16_(config.precision.mode == "bf16") {
    for (const auto& parameter : parameters_) {
      parameter.mutable_grad() = at::zeros_like(parameter);
      first_.push_back(at::zeros_like(parameter));
      second_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
  }

  void step(const GlobalBatch& batch) {
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters_) gradients.push_back(parameter.grad());
    at::_foreach_zero_(gradients);
    at::Tensor sum = at::zeros({});
    at::autocast::increment_nesting();
    for (int64_t begin = 0; begin < batch.local.size(); begin += microbatch_) {
      const Batch piece =
          batch.local.slice(begin, std::min(begin + microbatch_, batch.local.size()));
      const RandomScope random(0, attempt_, piece.ids);
      at::autocast::set_autocast_enabled(at::kCPU, bf16_);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      const at::Tensor loss = task_.phases[0].forward(piece)[0].sum;
      at::autocast::set_autocast_enabled(at::kCPU, false);
      (loss / batch.count("tokens")).backward();
      sum += loss.detach();
    }
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    ++attempt_;
    const at::NoGradGuard no_grad;
    const at::Tensor norm = at::stack(at::_foreach_norm(gradients, 2)).norm();
    const at::Tensor status = at::stack({sum, norm});
    const float* host = status.const_data_ptr<float>();
    if (!std::isfinite(host[0]) || !std::isfinite(host[1])) return;
    if (host[1] > 1.0f) at::_foreach_mul_(gradients, 1.0 / (host[1] + 1e-6));
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, 1e-3, 0.9, 0.999, 0.01,
                      1e-8, false, false);
  }

 private:
  Task task_;
  std::vector<at::Tensor> parameters_, first_, second_, steps_;
  int64_t microbatch_, attempt_ = 0;
  bool bf16_;
};

}  // namespace tanren::bench
