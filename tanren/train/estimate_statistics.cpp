#include "tanren/train/estimate_statistics.h"

#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/random.h"
#include "tanren/blocks/across_ranks.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/comm/exchange.h"
#include "tanren/data/loader.h"
#include "tanren/model/layers.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/on_ranks.h"
#include "tanren/train/prepared.h"
#include "tanren/train/step_error.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <set>

namespace tanren {

namespace {

// A batch norm whose statistics are being measured. It is in training mode meanwhile. The
// destructor restores its momentum and counter, and also its statistics unless keep() was called.
class MeasuredNorm {
 public:
  // `set_momentum` sets the share of the newest batch.
  MeasuredNorm(torch::nn::Module& module, std::optional<double> momentum,
               std::function<void(std::optional<double>)> set_momentum)
      : momentum_(momentum), set_momentum_(std::move(set_momentum)) {
    module.train();
    const auto buffers = module.named_buffers(false);
    statistics_ = {buffers["running_mean"], buffers["running_var"]};
    for (const at::Tensor& statistic : statistics_) before_.push_back(statistic.clone());
    if (const auto* count = buffers.find("num_batches_tracked")) {
      count_ = *count;
      count_before_ = count->clone();
    }
  }
  ~MeasuredNorm() {
    set_momentum_(momentum_);
    try {
      if (count_.defined()) count_.copy_(count_before_);
      for (size_t i = 0; i < before_.size(); ++i) statistics_[i].copy_(before_[i]);
    } catch (const std::exception&) {  // the device failed: report the error before
      return;
    }
  }
  MeasuredNorm(const MeasuredNorm&) = delete;
  MeasuredNorm& operator=(const MeasuredNorm&) = delete;

  // Call these before and after each forward. The statistics become the mean over the forwards that
  // pass through this layer.
  void begin_batch() {
    set_momentum_(1.0 / static_cast<double>(seen_ + 1));
    version_ = version();
  }
  void end_batch() { seen_ += !count_.defined() || version() != version_ ? 1 : 0; }
  const std::vector<at::Tensor>& statistics() const { return statistics_; }
  // Keeps the measured statistics.
  void keep() { before_.clear(); }

 private:
  // Changes with each forward in training mode, which increments the counter in place.
  uint32_t version() const { return count_.defined() ? count_._version() : 0; }

  int64_t seen_ = 0;  // forwards
  uint32_t version_ = 0;
  std::optional<double> momentum_;
  std::function<void(std::optional<double>)> set_momentum_;
  std::vector<at::Tensor> statistics_, before_;
  at::Tensor count_, count_before_;
};

using MeasuredNorms = std::vector<std::unique_ptr<MeasuredNorm>>;

// Adds the module if it is a Norm of torch that tracks statistics.
template <typename Norm>
void add_torch_norm(torch::nn::Module& module, MeasuredNorms& norms) {
  auto* norm = dynamic_cast<Norm*>(&module);
  if (norm == nullptr || !norm->options.track_running_stats()) return;
  norms.push_back(std::make_unique<MeasuredNorm>(
      module, norm->options.momentum(),
      [norm](std::optional<double> momentum) { norm->options.momentum(momentum); }));
}

// The norms that were `training` and whose statistics are averaged (the others stay as they are).
MeasuredNorms measured_norms(torch::nn::Module& root, const std::set<std::string>& training,
                             const TensorMap& averaged) {
  MeasuredNorms norms;
  std::set<const torch::nn::Module*> seen;  // one may have several names
  for (const auto& item : root.named_modules()) {
    auto& module = *item.value();
    const std::string mean = (item.key().empty() ? "" : item.key() + ".") + "running_mean";
    if (training.count(item.key()) == 0 || !averaged.contains(mean)) continue;
    if (!seen.insert(&module).second) continue;
    add_torch_norm<torch::nn::BatchNorm1dImpl>(module, norms);
    add_torch_norm<torch::nn::BatchNorm2dImpl>(module, norms);
    add_torch_norm<torch::nn::BatchNorm3dImpl>(module, norms);
    if (auto* norm = dynamic_cast<BatchNorm2d*>(&module)) {
      norms.push_back(std::make_unique<MeasuredNorm>(
          module, norm->momentum,
          [norm](std::optional<double> momentum) { norm->momentum = momentum.value_or(0.1); }));
    }
  }
  return norms;
}

// The batches that a rank measures, and their number of samples.
struct Share {
  int64_t batch = 0;           // samples; of all ranks if they measure it together
  int64_t first = 0, end = 0;  // batches [first, end) of the epoch
};

// The number of samples in a batch that is measured, the same on every rank: the smallest
// microbatch of any rank. With synchronised batch norm, which needs equal microbatches, it is one
// microbatch of every rank together.
int64_t batch_size(const Plan& plan, const Ranks& ranks) {
  const RankAxis& data = ranks.data();
  if (data.alone()) return plan.batch.microbatch;
  if (ranks.across_ranks() != nullptr) {
    return std::min(plan.batch.microbatch * data.size(), plan.batch.global_batch);
  }
  std::vector<double> sizes(static_cast<size_t>(data.size()), 0.0);
  sizes[static_cast<size_t>(data.rank())] = static_cast<double>(plan.batch.microbatch);
  sizes = sum_numbers(data.communicator(), sizes);
  return static_cast<int64_t>(*std::min_element(sizes.begin(), sizes.end()));
}

std::vector<Share> shares_of_ranks(const Plan& plan, const Ranks& ranks, int64_t samples) {
  const int64_t batch = std::min(batch_size(plan, ranks), samples);
  const int64_t all = samples / batch, asked = plan.average.estimate_batches;
  const int64_t count = asked > 0 ? std::min(asked, all) : all;
  const int64_t parts = ranks.across_ranks() != nullptr ? 1 : ranks.data().size();
  std::vector<Share> shares;
  for (int64_t rank = 0; rank < parts; ++rank) {
    shares.push_back({batch, rank * count / parts, (rank + 1) * count / parts});
  }
  shares.resize(static_cast<size_t>(ranks.data().size()), shares.front());
  return shares;
}

// Loads from the share's first batch on.
Loader loader_of(const RunState& run, const Parts& parts, const Share& share,
                 const Dataset& train) {
  const Plan& plan = parts.plan;
  LoaderOptions options;
  options.global_batch = share.batch;
  options.keep_last = false;
  options.shuffle = plan.data.shuffle;
  options.seed = run.seed;
  options.workers = plan.data.workers;
  options.prefetch = plan.data.prefetch;
  if (parts.ranks->across_ranks() != nullptr) {
    options.rank = parts.ranks->data().rank();
    options.world_size = parts.ranks->data().size();
  }
  return Loader(train, options, Cursor{.epoch = 0, .consumed = share.first * share.batch});
}

// One forward, which moves the statistics of the layers that it passes through.
void measure(const RunState& run, const Phase& phase, const Parts& parts, const Batch& local) {
  const Ranks& ranks = *parts.ranks;
  const Batch batch = prepared(local, run.task, parts);
  const AcrossRanksScope across_ranks(ranks.across_ranks());
  const RandomScope random(run.seed_of(phase), 0, batch.ids);
  const WindowScope window(parts.plan.precision, ranks.open_windows());
  const AutocastScope autocast(parts.device.type(), parts.plan.precision);
  block_trail().failed = 0;  // may be left from a shortage before
  try {
    phase.spec.forward(batch);
  } catch (...) {
    throw_located({.work = "estimate of batch norm's statistics",
                   .piece = batch,
                   .ranks = ranks,
                   .fix = "forward, or the data"});
  }
}

}  // namespace

bool estimate_statistics(const RunState& run, const Parts& parts, const Dataset& train) {
  run.settle();
  TensorMap averaged;  // that AverageScope swaps in; without averages that have not begun
  for (const WeightAverage* each : run.averages()) {
    if (each->num_updates() == 0) continue;
    for (const auto& [name, tensor] : each->state().tensors) averaged.set(name, tensor);
  }
  const at::NoGradGuard no_grad;
  const AverageScope average(run.averages());
  return !average.active() || measure_statistics(run, parts, train, averaged);
}

bool measure_statistics(const RunState& run, const Parts& parts, const Dataset& train,
                        const TensorMap& averaged) {
  std::set<std::string> training;
  for (const auto& item : run.task.module->named_modules()) {
    if (item.value()->is_training()) training.insert(item.key());
  }
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*run.task.module);
  const auto norms = measured_norms(*run.task.module, training, averaged);
  if (norms.empty()) return true;

  const Ranks& ranks = *parts.ranks;
  const auto shares = shares_of_ranks(parts.plan, ranks, train.size());
  const Share& own = shares[static_cast<size_t>(ranks.data().rank())];
  const bool together = ranks.across_ranks() != nullptr;  // each batch is an exchange
  constexpr int64_t kVoteEvery = 8;  // batches between votes on stopping together
  bool stopped = false;
  for (const Phase& phase : run.phases) {
    std::optional<Loader> loader;
    if (own.end > own.first) loader.emplace(loader_of(run, parts, own, train));
    for (int64_t i = 0; i < own.end - own.first && !stopped; ++i) {
      for (const auto& norm : norms) norm->begin_batch();
      measure(run, phase, parts, loader->next().local);
      for (const auto& norm : norms) norm->end_batch();
      stopped = parts.stops_evaluation();
      if (together) stopped = (i + 1) % kVoteEvery == 0 && on_any_rank(stopped, ranks);
    }
  }
  if (together && stopped) return false;
  if (!together) {  // otherwise all ranks have the same statistics
    if (on_any_rank(stopped, ranks)) return false;
    std::vector<at::Tensor> statistics;
    for (const auto& norm : norms) {
      statistics.insert(statistics.end(), norm->statistics().begin(), norm->statistics().end());
    }
    std::vector<double> batches;
    batches.reserve(shares.size());
    for (const Share& share : shares) {
      batches.push_back(static_cast<double>(share.end - share.first));
    }
    ranks.take_mean(statistics, batches);
  }
  for (const auto& norm : norms) norm->keep();
  return true;
}

}  // namespace tanren
