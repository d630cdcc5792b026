#include "tanren/train/window.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/comm/exchange.h"
#include "tanren/ops/global_norm.h"
#include "tanren/precision/measure.h"
#include "tanren/train/check_terms.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace tanren {

namespace {

// Stacks the tensors in one dtype.
at::Tensor stacked(std::vector<at::Tensor> values) {
  for (const auto& value : values) {
    if (value.scalar_type() == values[0].scalar_type()) continue;
    for (auto& other : values) other = other.to(at::kDouble);
    break;
  }
  return at::stack(values);
}

// Agrees on names and counts of the terms, which a rank without samples has not seen.
const std::vector<PhaseTerm>& agree_terms(Phase& phase, const DataParallel& parallel,
                                          const LossMeter& losses) {
  if (phase.terms.empty()) {
    std::vector<std::string> mine;
    for (size_t i = 0; i < losses.names().size(); ++i) {
      mine.push_back(losses.names()[i] + "\n" + losses.count_names()[i]);
    }
    for (const auto& text : parallel.agree_names(mine)) {
      const size_t line = text.find('\n');
      phase.terms.push_back({text.substr(0, line), text.substr(line + 1)});
    }
  }
  if (losses.microsteps() == 0) return phase.terms;
  const bool same = std::equal(
      phase.terms.begin(), phase.terms.end(), losses.names().begin(), losses.names().end(),
      [](const auto& term, const auto& name) { return term.name == name; });
  if (!same) {
    throw Error("[train] the terms of a loss differ over ranks or batches (now " +
                join(losses.names()) +
                "); return the same terms for every batch, 0 where there is none");
  }
  return phase.terms;
}

// What this rank adds to an objective's norm. Sharded gradients: the squared norm of this rank's
// part. Otherwise rank 0 contributes its norm and the others 0.
at::Tensor norm_share(const Gradients& gradients, const at::Tensor& norm, bool is_first) {
  const auto own = norm.to(at::kDouble).reshape({1});
  if (gradients.sharding().on()) return own.square();
  return is_first ? own : at::zeros_like(own);
}

double joint_norm(const Gradients& gradients, double sum) {
  return gradients.sharding().on() ? std::sqrt(sum) : sum;
}

// The share of all elements that this rank's parts have: its own shares are weighted with it.
double weight_of_parts(const Gradients& gradients) {
  double own = 0, all = 0;
  for (const auto& part : gradients.owned()) own += static_cast<double>(part.numel());
  for (const auto& parameter : gradients.parameters()) {
    all += static_cast<double>(parameter.numel());
  }
  return own / all;
}

// Per term, whether it had a graph in a microbatch of this rank.
std::vector<bool> graphs_of(const LossMeter& losses, size_t num_terms) {
  std::vector<bool> has(num_terms, false);
  for (size_t i = 0; i < losses.sums().size(); ++i) {
    if (losses.has_graph(i)) has[i % num_terms] = true;
  }
  return has;
}

// This rank's part of the row that ranks sum.
at::Tensor own_row(const Phase& phase, const Parts& parts, const Batch& local,
                   const LossMeter& losses, const std::vector<at::Tensor>& norms,
                   const std::vector<at::Tensor>& shares) {
  const at::Device device = parts.parallel->communicator().device();
  const auto options = at::TensorOptions(at::kDouble).device(device);
  std::vector<at::Tensor> row;
  if (losses.microsteps() > 0) {
    const auto sums = stacked(losses.sums()).to(at::kDouble);
    row.push_back(sums.view({losses.microsteps(), -1}).sum(0).to(device));
  } else {
    row.push_back(at::zeros({std::ssize(phase.terms)}, options));
  }
  const bool is_first = parts.parallel->is_first();
  for (size_t i = 0; i < norms.size(); ++i) {
    row.push_back(norm_share(phase.objectives[i].gradients, norms[i], is_first).to(device));
  }
  for (const auto& share : shares) row.push_back(share.to(device, at::kDouble).reshape({1}));
  std::vector<double> flags;
  for (const bool has : graphs_of(losses, phase.terms.size())) flags.push_back(has ? 1.0 : 0.0);
  flags.push_back(parts.stop_requested() ? 1.0 : 0.0);
  for (int64_t rank = 0; rank < parts.parallel->world_size(); ++rank) {
    const bool own = rank == parts.parallel->rank();
    flags.push_back(own ? static_cast<double>(local.size()) : 0.0);
  }
  for (const auto& objective : phase.objectives) {
    const auto* active = objective.gradients.active();
    const size_t count = objective.gradients.parameters().size();
    for (size_t i = 0; i < count; ++i) {
      flags.push_back(active == nullptr || (*active)[i] != 0 ? 1.0 : 0.0);
    }
  }
  row.push_back(at::tensor(flags, at::kDouble).to(device));
  return at::cat(row);
}

// Sets the objective's terms of `names`, each divided by its count, and their weighted sum. A mean
// over nothing does not exist: then NaN.
void take_terms(const ObjectiveSpec& spec, const std::vector<std::string>& names,
                const std::vector<std::string>& count_names, const GlobalBatch& batch,
                const std::vector<double>& sums, Status& status) {
  for (size_t i = 0; i < names.size(); ++i) {
    double weight = spec.terms.empty() ? 1.0 : 0.0;
    for (const auto& term : spec.terms) weight += term.name == names[i] ? term.weight : 0;
    if (weight == 0.0) continue;
    const double count = batch.count(count_names[i]);
    const double mean = count == 0 ? std::numeric_limits<double>::quiet_NaN() : sums[i] / count;
    status.loss += weight * mean;
    status.terms.emplace_back(names[i], mean);
    if (count != 0 || !status.uncounted.empty()) continue;
    status.uncounted_term = names[i];
    status.uncounted = count_names[i];
  }
}

}  // namespace

WindowStatus measure_window(Phase& phase, const torch::nn::Module& module, const Parts& parts,
                            const GlobalBatch& batch, const LossMeter& losses) {
  const bool report_flush = parts.plan.precision.report_flush;
  const bool alone = parts.parallel->alone();
  std::vector<at::Tensor> values(losses.sums()), norms, shares;
  for (auto& objective : phase.objectives) {
    const auto measured =
        unscale_and_measure(objective.gradients.owned(), objective.scaler.scale(), report_flush);
    // Shared gradients: each rank has measured its own parts, and the row joins them.
    const bool joins = !alone && objective.gradients.sharding().on();
    (alone ? values : norms).push_back(measured.norm);
    if (report_flush) {
      const double weight = joins ? weight_of_parts(objective.gradients) : 1.0;
      (joins ? shares : values).push_back(measured.flush_share * weight);
      (joins ? shares : values).push_back(measured.overflow_share * weight);
    }
  }

  // One read: the row summed over ranks, then this rank's own values.
  std::vector<std::string> names = losses.names(), count_names = losses.count_names();
  std::vector<double> host, shared;
  if (alone) {
    host = read_to_host(stacked(values));
  } else {
    names.clear();
    count_names.clear();
    for (const auto& term : agree_terms(phase, *parts.parallel, losses)) {
      names.push_back(term.name);
      count_names.push_back(term.count_name);
    }
    at::Tensor row = own_row(phase, parts, batch.local, losses, norms, shares);
    parts.parallel->communicator().sum(row);
    if (!values.empty()) {
      row = at::cat({row, stacked(values).to(at::kDouble).to(row.device())});
    }
    host = read_to_host(row);
    const auto length = host.size() - values.size();
    shared.assign(host.begin(), host.begin() + static_cast<std::ptrdiff_t>(length));
    host.erase(host.begin(), host.begin() + static_cast<std::ptrdiff_t>(length));
  }

  const size_t num_terms = names.size();
  std::vector<double> sums(num_terms, 0.0);
  int64_t bad_microstep = -1;
  for (int64_t microstep = 0; microstep < losses.microsteps(); ++microstep) {
    for (size_t i = 0; i < num_terms; ++i) {
      const double sum = host[static_cast<size_t>(microstep) * num_terms + i];
      if (!std::isfinite(sum) && bad_microstep < 0) bad_microstep = microstep;
      sums[i] += sum;
    }
  }
  if (!alone) std::copy_n(shared.begin(), num_terms, sums.begin());

  WindowStatus window;
  size_t next = losses.sums().size();
  size_t next_shared = num_terms;
  for (const auto& objective : phase.objectives) {
    Status status;
    take_terms(objective.spec, names, count_names, batch, sums, status);
    status.bad_microstep = bad_microstep;
    status.norm = alone ? host[next++] : joint_norm(objective.gradients, shared[next_shared++]);
    if (report_flush && shares.empty()) {
      status.flush_share = host[next++];
      status.overflow_share = host[next++];
    }
    window.objectives.push_back(std::move(status));
  }
  std::vector<bool> has_graph = graphs_of(losses, num_terms);
  if (alone) {
    check_graphs(phase, module, *parts.parallel, names, has_graph, sums);
    return window;
  }
  for (size_t i = 0; i < shares.size() / 2; ++i) {
    window.objectives[i].flush_share = shared[next_shared++];
    window.objectives[i].overflow_share = shared[next_shared++];
  }
  for (size_t i = 0; i < num_terms; ++i) has_graph[i] = shared[next_shared++] > 0;
  window.stop_requested = shared[next_shared++] > 0;
  for (int64_t rank = 0; rank < parts.parallel->world_size(); ++rank) {
    window.samples.push_back(shared[next_shared++]);
  }
  for (auto& objective : phase.objectives) {
    std::vector<uint8_t> active(objective.gradients.parameters().size());
    for (auto& flag : active) flag = shared[next_shared++] > 0 ? 1 : 0;
    objective.gradients.set_active(active);
  }
  check_graphs(phase, module, *parts.parallel, names, has_graph, sums);
  return window;
}

double agreed_exact_norm(const Objective& objective, const Parts& parts) {
  const double own = exact_norm(objective.gradients.owned());
  if (parts.parallel->alone()) return own;
  if (objective.gradients.sharding().on()) {
    return std::sqrt(sum_numbers(parts.parallel->communicator(), {own * own})[0]);
  }
  return sum_numbers(parts.parallel->communicator(), {parts.parallel->is_first() ? own : 0.0})[0];
}

}  // namespace tanren
