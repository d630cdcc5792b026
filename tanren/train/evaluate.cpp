#include "tanren/train/evaluate.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/log.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/data/eval_pass.h"
#include "tanren/metrics/evaluation_metrics.h"
#include "tanren/train/check_terms.h"
#include "tanren/train/evaluation_sums.h"
#include "tanren/train/explained.h"
#include "tanren/train/judgement.h"
#include "tanren/train/on_ranks.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"
#include "tanren/train/undo.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace tanren {

namespace {

std::vector<std::string> term_names(const Terms& terms) {
  std::vector<std::string> names;
  for (const Term& term : terms) names.push_back(term.name);
  return names;
}

// Throws DataError if no count of the data divides a term: such an evaluation would have no result.
void check_counts(const Terms& terms, const TermWeights& weights, const Counts& counts) {
  const auto factors = weights.factors(term_names(terms));
  std::string wanted, known;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (factors[i] == 0) continue;
    const Term& term = terms[i];
    // A collate may leave the key out in a batch that has nothing to count.
    if (counts.count(term.count_name) > 0 || term.sum.item<double>() == 0) return;
    wanted += (wanted.empty() ? "" : ", ") + term.count_name;
  }
  if (wanted.empty()) return;
  for (const auto& [name, count] : counts) known += (known.empty() ? "" : ", ") + name;
  throw DataError("[evaluate] predict's terms are divided by " + wanted +
                  ", and the evaluation data count " + known +
                  "; let the dataset's collate count it");
}

// Checks that a rehearsal of predict leaves the module's parameters on this rank unchanged. torch's
// embeddings with max_norm shorten rows of their weights in every forward; these weights are
// restored. Any other change of a parameter (for example an initialisation by the first data) is an
// error, and so is a new parameter.
class KeptTensors {
 public:
  explicit KeptTensors(const RunState& run)
      : module_(*run.task.module), held_(held(run)), prints_(prints()), names_(names_of(module_)) {
    const auto keep = [&](const std::string& name, const auto* embedding) {
      if (embedding == nullptr || !embedding->options.max_norm()) return;
      if (!run.holds(name + (name.empty() ? "weight" : ".weight"))) return;
      shortened_.emplace_back(embedding->weight.detach(), embedding->weight.detach().clone());
    };
    for (const auto& part : module_.named_modules()) {
      keep(part.key(), dynamic_cast<const torch::nn::EmbeddingImpl*>(part.value().get()));
      keep(part.key(), dynamic_cast<const torch::nn::EmbeddingBagImpl*>(part.value().get()));
    }
  }

  void restore_or_refuse() const {
    for (const auto& [weight, before] : shortened_) weight.copy_(before);
    refuse_grown("[evaluate] ", module_, names_);
    const auto now = prints();
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i] == prints_[i] || (std::isnan(now[i]) && std::isnan(prints_[i]))) continue;
      throw ConfigError("[evaluate] predict changed parameter " + held_[i / 2].name +
                        ", which updates alone may; set it in the constructor, in a forward of "
                        "training (is_training()), or shorten its rows by torch::nn::Embedding");
    }
  }

 private:
  // Norm and sum of each parameter, which take no memory; a changed value almost surely changes
  // them.
  std::vector<double> prints() const {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> prints;
    for (const auto& [name, parameter] : held_) {
      const at::Tensor sum = parameter.sum().to(at::kDouble);
      const bool has_norm = parameter.is_floating_point();
      prints.push_back(has_norm ? at::linalg_vector_norm(parameter).to(at::kDouble) : sum);
      prints.push_back(sum);
    }
    return prints.empty() ? std::vector<double>() : read_to_host(at::stack(prints));
  }

  struct Held {
    std::string name;
    at::Tensor parameter;
  };
  static std::vector<Held> held(const RunState& run) {
    std::vector<Held> all;
    for (const auto& item : run.task.module->named_parameters()) {
      if (run.holds(item.key())) all.push_back({item.key(), item.value()});
    }
    return all;
  }

  const torch::nn::Module& module_;
  std::vector<Held> held_;
  std::vector<double> prints_;
  std::vector<std::string> names_;
  std::vector<std::pair<at::Tensor, at::Tensor>> shortened_;  // a weight, and its value before
};

// No value: this rank has the whole model.
std::optional<StagedForward> staged_forward(const RunState& run, const Parts& parts) {
  std::optional<StagedForward> staged;
  if (run.stage && run.stage->stages() > 1) staged.emplace(run, parts);
  return staged;
}

// The progress of an evaluation; also valid after it throws.
struct Progress {
  int64_t samples = 0;  // evaluated so far
  std::string left_out;
  bool is_stopped = false;  // a stop on some rank; the report is then empty
};

EvaluationReport evaluate_all(const RunState& run, const Parts& parts, const Dataset& dataset,
                              bool may_stop, const SeePrediction& see, Progress& progress) {
  const auto start = std::chrono::steady_clock::now();
  const MustSucceedScope must_succeed;
  const DeviceRetryScope retries(parts.recovery->reserve());
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*run.task.module);
  const bool wants_average = parts.plan.average.evaluate;
  const AverageScope average(wants_average ? run.averages() : std::vector<WeightAverage*>());
  const auto& options = parts.plan.evaluate;

  EvaluationMetrics metrics(options.metrics, parts.device);
  EvaluationSums sums;
  const auto take = [&](const Prediction& prediction) {
    sums.add(prediction.terms);
    metrics.add(prediction.outputs, prediction.targets);
  };
  int64_t most = std::numeric_limits<int64_t>::max();  // samples at once that memory allows
  const auto& ranks = *parts.ranks;
  EvalPass pass(dataset, options.batch, ranks.data().rank(), ranks.data().size(),
                parts.plan.data.workers);
  auto staged = staged_forward(run, parts);
  const bool has_results = !staged || staged->is_last();
  // The stages of a replica have the same batches and must stop after the same one.
  constexpr int64_t kVoteEvery = 8;  // batches
  int64_t batches = 0;
  const auto stops = [&] {
    const bool here = may_stop && parts.stops_evaluation();
    if (!staged || !may_stop) return here;
    return batches % kVoteEvery == 0 && on_any_rank(here, ranks.pipeline());
  };
  bool stopped = stops();
  while (!stopped) {
    const auto collated = pass.next();
    if (!collated) break;
    const Batch batch = prepared(collated->batch, run.task, parts);
    for (int64_t begin = 0; begin < batch.size();) {
      const int64_t end = begin + std::min(most, batch.size() - begin);
      const Batch part = end - begin == batch.size() ? batch : batch.slice(begin, end);
      const auto take_part = [&](const Prediction& prediction) {
        take(prediction);
        if (see) see(part, prediction);
      };
      if (staged) {
        predict_in_stages(run, parts, part, *staged, take_part);
      } else if (const auto shortage = predict(run, parts, part, take_part)) {
        most = smaller(part.size(), "samples", "evaluate.batch", *shortage, parts,
                       run.task.facts.least_samples);
        continue;
      }
      begin = end;
    }
    if (has_results) sums.add(collated->counts);
    progress.samples += batch.size();
    ++batches;
    stopped = stops();
  }
  if (staged) staged->finish();
  if (may_stop && on_any_rank(stopped, ranks)) {
    progress.is_stopped = true;
    return {};
  }
  sums.join_over(ranks);
  metrics.join_over(ranks.world().communicator());
  const auto means = sums.means(TermWeights(run));
  progress.left_out = means.left_out;
  EvaluationReport report;
  if (!means.terms.empty()) {
    report = metrics.result(means.terms, sums.counts());
    report.values.insert(report.values.begin(), {"loss", means.loss});
    report.tokens = static_cast<int64_t>(sums.count("tokens"));
  }
  report.step = run.step();
  report.samples = static_cast<int64_t>(sums.count("samples"));
  report.averaged = average.active();
  report.seconds = seconds_since(start);
  return report;
}

std::optional<EvaluationReport> evaluate_explained(const RunState& run, const Parts& parts,
                                                   const Dataset& dataset, bool may_stop,
                                                   std::string* told, const SeePrediction& see) {
  check_predicts(run.task);
  run.settle();
  const int64_t batch_size = parts.plan.evaluate.batch;
  Progress progress;
  int64_t seen = 0;
  std::optional<EvalPass> again;
  // A device reports a failure late: any of the batches so far may have caused it.
  const auto batches_so_far = [&](Batch& batch) {
    if (seen > progress.samples) return false;
    if (!again) {
      const RankAxis& data = parts.ranks->data();
      again.emplace(dataset, batch_size, data.rank(), data.size());
    }
    auto collated = again->next();
    if (!collated) return false;
    batch = std::move(collated->batch);
    seen += batch.size();
    return true;
  };
  EvaluationReport report;
  MemoryState memory;
  explained({.name = "evaluation",
             .dataset = dataset,
             .classes = run.task.classes,
             .microbatch = batch_size,
             .next_batch = batches_so_far},
            parts.recovery->gauge(), memory,
            [&] { report = evaluate_all(run, parts, dataset, may_stop, see, progress); });
  if (progress.is_stopped) return std::nullopt;
  const std::string& left_out = progress.left_out;
  const bool is_news = told == nullptr || left_out != *told;
  if (!left_out.empty() && is_news && parts.ranks->world().is_first()) {
    log(left_out + "; its loss is without that");
  }
  if (told != nullptr && !left_out.empty()) *told = left_out;
  return report;
}

}  // namespace

void check_predicts(const Task& task) {
  if (task.predict || task.predict_rows) return;
  throw ConfigError(
      "[evaluate] the task has no predict, which evaluations ask for; set task.predict, or drop "
      "[data.eval]");
}

EvaluationReport evaluate(const RunState& run, const Parts& parts, const Dataset& dataset,
                          std::string* told, const SeePrediction& see) {
  return *evaluate_explained(run, parts, dataset, /*may_stop=*/false, told, see);
}

std::optional<EvaluationReport> evaluate_unless_stopped(const RunState& run, const Parts& parts,
                                                        const Dataset& dataset, std::string* told) {
  return evaluate_explained(run, parts, dataset, /*may_stop=*/true, told, {});
}

void rehearse_evaluation(const RunState& run, const Parts& parts, const Dataset& dataset) {
  check_predicts(run.task);
  run.settle();
  const Undo before(run, parts.device, /*with_generators=*/parts.ranks->world().alone());
  const KeptTensors tensors(run);
  std::optional<Collated> first;
  std::vector<std::string> left_out;
  const auto rehearse = [&] {
    const MustSucceedScope must_succeed;
    const DeviceRetryScope retries(parts.recovery->reserve());
    const at::NoGradGuard no_grad;
    const EvalModeScope eval_mode(*run.task.module);
    const RankAxis& data = parts.ranks->data();
    EvalPass pass(dataset, parts.plan.evaluate.batch, data.rank(), data.size());
    first = pass.next();
    if (!first) return;
    EvaluationMetrics metrics(parts.plan.evaluate.metrics, parts.device);
    EvaluationSums sums;
    const TermWeights weights(run);
    const auto take = [&](const Prediction& prediction) {
      check_can_judge(parts.plan, !prediction.terms.empty());
      check_counts(prediction.terms, weights, first->counts);
      left_out = weights.left_out(term_names(prediction.terms));
      sums.add(prediction.terms);
      metrics.add(prediction.outputs, prediction.targets);
    };
    const Batch batch = prepared(first->batch, run.task, parts);
    if (auto staged = staged_forward(run, parts)) {
      predict_in_stages(run, parts, batch, *staged, take);
      staged->finish();
      if (!staged->is_last()) return;
    } else {
      // If memory runs out here, the evaluation itself will take the samples in parts.
      predict(run, parts, batch, take);
    }
    sums.add(first->counts);
    try {
      const auto means = sums.means(weights);
      if (!means.terms.empty()) (void)metrics.result(means.terms, sums.counts());
    } catch (const NothingToEvaluate&) {  // only in this batch
      return;
    }
  };
  const auto host = [&](Batch& batch) {
    if (!first) return false;
    batch = std::exchange(first, std::nullopt)->batch;
    return true;
  };
  MemoryState memory;
  explained({.name = "evaluation",
             .dataset = dataset,
             .classes = run.task.classes,
             .microbatch = parts.plan.evaluate.batch,
             .next_batch = host},
            parts.recovery->gauge(), memory, rehearse);
  tensors.restore_or_refuse();
  before.restore_all();
  if (left_out.empty() || parts.ranks->data().rank() > 0) return;
  log("[evaluate] the loss is without " + join(left_out) + ", which no objective trains");
}

}  // namespace tanren
