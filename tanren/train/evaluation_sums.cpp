#include "tanren/train/evaluation_sums.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/task.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/config/run_config.h"
#include "tanren/train/run_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace tanren {

TermWeights::TermWeights(const Task& task, const RunConfig& config) {
  for (const PhaseSpec& phase : task.phases) {
    for (const ObjectiveSpec& objective : phase.objectives) {
      const auto own = config.objectives.find(objective.name);
      add(objective,
          own == config.objectives.end() ? std::map<std::string, double>() : own->second.weights);
    }
  }
}

TermWeights::TermWeights(const RunState& run) {
  for (const Phase& phase : run.phases) {
    for (const Objective& objective : phase.objectives) {
      add(objective.spec, objective.plan.weights);
    }
  }
}

void TermWeights::add(const ObjectiveSpec& objective,
                      const std::map<std::string, double>& configured) {
  auto& weights = objectives_.emplace_back(configured);
  for (const WeightedTerm& term : objective.terms) weights.emplace(term.name, term.weight);
  takes_others_.push_back(objective.terms.empty());
}

std::vector<double> TermWeights::factors(const std::vector<std::string>& terms) const {
  std::vector<double> factors;
  bool is_trained = false;
  for (const std::string& term : terms) {
    double factor = 0;
    for (size_t i = 0; i < objectives_.size() && factor == 0; ++i) {
      const auto found = objectives_[i].find(term);
      factor = found != objectives_[i].end() ? found->second : takes_others_[i] ? 1 : 0;
    }
    factors.push_back(factor);
    is_trained = is_trained || factor != 0;
  }
  if (!is_trained) factors.assign(terms.size(), 1);
  return factors;
}

std::vector<std::string> TermWeights::left_out(const std::vector<std::string>& terms) const {
  std::vector<std::string> names;
  const auto weights = factors(terms);
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto has_it = [&](const auto& objective) { return objective.count(terms[i]) > 0; };
    if (weights[i] != 0 || std::any_of(objectives_.begin(), objectives_.end(), has_it)) continue;
    names.push_back(terms[i]);
  }
  return names;
}

void EvaluationSums::add(const Terms& terms) {
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto& term = terms[i];
    if (i == sums_.size()) {
      names_.push_back(term.name);
      count_names_.push_back(term.count_name);
      sums_.push_back(at::zeros({}, term.sum.options().dtype(at::kDouble)));
    }
    sums_[i] += term.sum;
  }
}

void EvaluationSums::add(const Counts& counts) {
  for (const auto& [name, count] : counts) counts_[name] += count;
}

void EvaluationSums::join_over(const Ranks& ranks) {
  if (ranks.world().alone()) return;
  std::vector<std::string> mine, counted;
  for (size_t i = 0; i < names_.size(); ++i) mine.push_back(names_[i] + "\n" + count_names_[i]);
  for (const auto& [name, count] : counts_) counted.push_back(name);
  const auto terms = ranks.agree_names(mine);
  const auto counts = ranks.agree_names(counted);

  std::vector<double> row(terms.size(), 0.0);
  if (!sums_.empty()) row = read_to_host(at::stack(sums_));
  row.resize(terms.size(), 0.0);
  for (const auto& name : counts) row.push_back(count(name));
  row = sum_numbers(ranks.world().communicator(), row);

  const auto options = sums_.empty() ? at::TensorOptions(at::kDouble) : sums_[0].options();
  names_.clear();
  count_names_.clear();
  sums_.clear();
  for (size_t i = 0; i < terms.size(); ++i) {
    const size_t line = terms[i].find('\n');
    names_.push_back(terms[i].substr(0, line));
    count_names_.push_back(terms[i].substr(line + 1));
    sums_.push_back(at::full({}, row[i], options));
  }
  for (size_t i = 0; i < counts.size(); ++i) counts_[counts[i]] = row[terms.size() + i];
}

EvaluationSums::Means EvaluationSums::means(const TermWeights& weights) const {
  Means means;
  if (sums_.empty()) return means;
  const auto values = read_to_host(at::stack(sums_));
  const auto factors = weights.factors(names_);
  std::string uncounted;
  size_t num_counted = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double divisor = count(count_names_[i]);
    const double mean =
        divisor == 0 ? std::numeric_limits<double>::quiet_NaN() : values[i] / divisor;
    means.terms.emplace_back(names_[i], mean);
    if (factors[i] == 0) continue;
    if (divisor == 0) {
      uncounted += (uncounted.empty() ? "" : ", ") + ("0 " + count_names_[i]) + " to divide " +
                   names_[i] + " by";
      continue;
    }
    ++num_counted;
    means.loss += factors[i] * mean;
  }
  if (uncounted.empty()) return means;
  means.left_out = fmt::format("[evaluate] the evaluation set has {} samples and {}",
                               count("samples"), uncounted);
  if (num_counted == 0) {
    throw NothingToEvaluate(means.left_out +
                            "; take data with labels that count, and let its collate count them");
  }
  return means;
}

double EvaluationSums::count(const std::string& name) const {
  const auto found = counts_.find(name);
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace tanren
