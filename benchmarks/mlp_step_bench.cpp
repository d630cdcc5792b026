// tanren's whole step (update, report, JSONL) against the same with TensorBoard files, against a
// hand-written libtorch loop that also clips, checks finiteness and reads the device once, and
// against that loop with torch::optim::AdamW. MLP 64-128-128-10, batch 32, AdamW, fp32, batches
// collated in memory.
//   mlp_step_bench [threads] [pairs]
#include "tanren/base/random.h"
#include "tanren/data/dataset.h"
#include "tanren/metrics/jsonl_sink.h"
#include "tanren/metrics/tensorboard_sink.h"
#include "tanren/model/registry.h"
#include "tanren/plan/planner.h"
#include "tanren/train/build.h"
#include "tanren/train/memory_now.h"
#include "tanren/train/train_step.h"
#include "benchmarks/paired.h"

#include <ATen/ATen.h>
#include <torch/csrc/api/include/torch/optim/adamw.h>
#include <torch/nn/utils/clip_grad.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

namespace tanren {

namespace {

constexpr int kStepsPerBlock = 200;

RunConfig config_of(int64_t threads) {
  RunConfig config;
  config.run.steps = 1000000;
  config.run.threads = threads;
  config.run.device = "cpu";
  config.model.kind = "mlp";
  config.data.train.kind = "synthetic";
  config.data.train.fields = {"inputs: float[64] in [-1, 1]", "labels: int[] in [0, 9]"};
  config.data.train.samples = 1024;
  config.precision.mode = "fp32";
  config.clip.norm = 1.0;
  return config;
}

// A careful hand-written loop on the same module and batches.
class HandLoop {
 public:
  HandLoop(const RunConfig& config, const Dataset& data, bool torch_optimizer)
      : task_(build_task(config, ModelRegistry(), data)), parameters_(task_.module->parameters()) {
    if (torch_optimizer) {
      optimizer_ =
          std::make_unique<torch::optim::AdamW>(parameters_, torch::optim::AdamWOptions(1e-3));
    }
    for (const auto& parameter : parameters_) {
      first_.push_back(at::zeros_like(parameter));
      second_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}));
    }
  }

  void step(const Batch& batch) {
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
    const RandomScope random(0, 0, batch.ids);
    const at::Tensor loss =
        task_.phases[0].forward(batch)[0].sum / static_cast<double>(batch.size());
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters_) gradients.push_back(parameter.grad());
    if (optimizer_) {
      const double norm = torch::nn::utils::clip_grad_norm_(parameters_, 1.0);
      if (std::isfinite(norm)) optimizer_->step();
      return;
    }
    const at::NoGradGuard no_grad;
    const at::Tensor norm = at::stack(at::_foreach_norm(gradients, 2)).norm();
    const at::Tensor status = at::stack({loss.detach(), norm});
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
  std::unique_ptr<torch::optim::AdamW> optimizer_;
};

// What train_loop does for a step, on a batch that was collated before.
class TanrenLoop {
 public:
  TanrenLoop(const RunConfig& config, const Dataset& data, Sink& sink) : sink_(sink) {
    Task task = build_task(config, ModelRegistry(), data);
    ModelProfile profile;
    profile.train_samples = data.size();
    parts_ = build_parts(make_plan(config, Machine{}, profile), nullptr);
    state_ = build_run_state(std::move(task), parts_);
  }

  void step(const GlobalBatch& batch) {
    const auto start = std::chrono::steady_clock::now();
    auto report = *update(state_, parts_, batch);
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    report.memory_bytes = memory_now(parts_.device);
    sink_.step(report);
  }

 private:
  Sink& sink_;
  Parts parts_;
  RunState state_;
};

int benchmark(int argc, char** argv) {
  const int64_t threads = argc > 1 ? std::atoll(argv[1]) : 1;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 40;
  const RunConfig config = config_of(threads);
  const auto data = open_dataset(config.data.train, "data.train");
  std::vector<GlobalBatch> batches;
  for (int64_t begin = 0; begin + 32 <= data->size(); begin += 32) {
    std::vector<int64_t> indices(32);
    std::iota(indices.begin(), indices.end(), begin);
    auto collated = data->collate(indices);
    batches.push_back({collated.batch, collated.counts, 0, begin + 32});
  }
  const auto log = std::filesystem::temp_directory_path() / "tanren-mlp-step-bench.jsonl";
  const auto sink = make_jsonl_sink(log);
  struct Both final : Sink {
    std::unique_ptr<Sink> log, view;
    void step(const StepReport& report) override {
      log->step(report);
      view->step(report);
    }
  } both;
  const auto log_too = log.string() + "-too", view = log.string() + "-tensorboard";
  both.log = make_jsonl_sink(log_too);
  both.view = make_tensorboard_sink(view, {});
  TanrenLoop ours(config, *data, *sink), ours_with_both(config, *data, both);
  HandLoop hand(config, *data, false), hand_too(config, *data, false),
      torch_loop(config, *data, true);

  const auto block = [&](auto&& step) {
    return [&, step] {
      return bench::seconds([&] {
               for (int i = 0; i < kStepsPerBlock; ++i) step(batches[i % batches.size()]);
             }) /
             kStepsPerBlock;
    };
  };
  const auto tanren_block = block([&](const GlobalBatch& batch) { ours.step(batch); });
  const auto both_block = block([&](const GlobalBatch& batch) { ours_with_both.step(batch); });
  const auto hand_block = block([&](const GlobalBatch& batch) { hand.step(batch.local); });
  const auto hand_too_block = block([&](const GlobalBatch& batch) { hand_too.step(batch.local); });
  const auto torch_block = block([&](const GlobalBatch& batch) { torch_loop.step(batch.local); });

  std::printf("%lld thread(s), %d pairs of blocks of %d steps, microseconds a step\n",
              static_cast<long long>(threads), pairs, kStepsPerBlock);
  const auto same = bench::pair_up(pairs, hand_too_block, hand_block);
  const auto against_hand = bench::pair_up(pairs, tanren_block, hand_block);
  const auto against_torch = bench::pair_up(pairs, tanren_block, torch_block);
  bench::print("hand-written / itself (the A/A spread)", same, 1e6, "us");
  bench::print("tanren / hand-written, fused AdamW", against_hand, 1e6, "us");
  bench::print("tanren / hand-written, torch::optim::AdamW", against_torch, 1e6, "us");
  const auto with_view = bench::pair_up(pairs, both_block, tanren_block);
  bench::print("tanren with TensorBoard files / tanren", with_view, 1e6, "us");
  const double noise = std::abs(same.difference.median);
  const double allowed = std::max(0.03 * against_hand.b.median, 10e-6) + noise;
  std::printf("overhead over the hand-written loop %+.1f us, allowed %.1f us: %s\n",
              against_hand.difference.median * 1e6, allowed * 1e6,
              against_hand.difference.median <= allowed ? "kept" : "NOT KEPT");
  std::printf("against torch::optim::AdamW: %s\n",
              against_torch.ratio.median < 1 ? "faster" : "NOT FASTER");
  std::filesystem::remove(log);
  std::filesystem::remove(log_too);
  std::filesystem::remove_all(view);
  return 0;
}

}  // namespace

}  // namespace tanren

int main(int argc, char** argv) { return tanren::benchmark(argc, argv); }
