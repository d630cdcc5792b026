#include "tanren/train/evaluation_sums.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"

#include <ATen/ATen.h>

#include <limits>

namespace tanren {

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

EvaluationSums::Means EvaluationSums::means() const {
  Means means;
  if (sums_.empty()) return means;
  const auto values = read_to_host(at::stack(sums_));
  std::string uncounted;
  size_t num_counted = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double divisor = count(count_names_[i]);
    if (divisor == 0) {
      uncounted += (uncounted.empty() ? "" : ", ") + ("0 " + count_names_[i]) + " to divide " +
                   names_[i] + " by";
      means.terms.emplace_back(names_[i], std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    ++num_counted;
    means.terms.emplace_back(names_[i], values[i] / divisor);
    means.loss += means.terms.back().second;
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
