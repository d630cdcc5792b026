#include "tanren/train/evaluate.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/random.h"
#include "tanren/data/eval_pass.h"
#include "tanren/metrics/evaluation_metrics.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/train/train_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <chrono>

namespace tanren {

namespace {

// Puts every module in eval mode and gives each its own flag back, so that a frozen batch norm
// stays frozen.
class EvalModeScope {
 public:
  explicit EvalModeScope(torch::nn::Module& module) {
    for (auto& child : module.modules()) modes_.emplace_back(child, child->is_training());
    module.eval();
  }
  ~EvalModeScope() {
    // Parents come first in the list, so a child's own flag is set last.
    for (auto& [module, training] : modes_) module->train(training);
  }
  EvalModeScope(const EvalModeScope&) = delete;
  EvalModeScope& operator=(const EvalModeScope&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace

EvaluationReport evaluate(const RunState& run, const Parts& parts, const Dataset& dataset) {
  const auto start = std::chrono::steady_clock::now();
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*run.task.module);
  const auto& options = parts.plan.evaluate;
  int64_t size = options.batch > 0 ? options.batch : run.microbatch;
  if (size <= 0) size = parts.plan.batch.global_batch;

  EvaluationReport report{.step = run.step()};
  EvaluationMetrics metrics(options.metrics, parts.device);
  std::vector<std::string> names;
  std::vector<at::Tensor> sums;
  Counts counts;
  std::vector<std::string> count_names;
  EvalPass pass(dataset, size, 0, 1, parts.plan.data.workers);
  while (const auto collated = pass.next()) {
    const Batch batch = prepared(collated->batch, parts);
    const RandomScope random(run.seed, run.attempt, batch.ids);
    const WindowScope window(parts.plan.precision.mode);
    const AutocastScope autocast(parts.device.type(), parts.plan.precision.mode);
    const Prediction prediction = run.task.predict(batch);
    for (size_t i = 0; i < prediction.terms.size(); ++i) {
      const auto& term = prediction.terms[i];
      if (i == sums.size()) {
        names.push_back(term.name);
        count_names.push_back(term.count_name);
        sums.push_back(at::zeros({}, term.sum.options().dtype(at::kDouble)));
      }
      sums[i] += term.sum;
    }
    for (const auto& [name, count] : collated->counts) counts[name] += count;
    metrics.add(prediction.outputs, prediction.targets);
    report.samples += batch.size();
  }
  if (!sums.empty()) {
    const auto values = read_to_host(at::stack(sums));
    double loss = 0;
    for (size_t i = 0; i < values.size(); ++i) loss += values[i] / counts.at(count_names[i]);
    report.values.emplace_back("loss", loss);
    for (auto& value : metrics.result()) report.values.push_back(std::move(value));
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace tanren
