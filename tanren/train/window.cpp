#include "tanren/train/window.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/precision/measure.h"
#include "tanren/train/check_terms.h"
#include "tanren/train/status_row.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

namespace tanren {

namespace {

using Join = StatusRow::Join;

// The window's terms. Several ranks agree on names and counts, since a rank without samples has not
// seen any; one rank may have other terms in every window.
std::vector<PhaseTerm> agreed_terms(Phase& phase, const Ranks& ranks, const LossMeter& losses) {
  std::vector<PhaseTerm> mine;
  for (size_t i = 0; i < losses.names().size(); ++i) {
    mine.push_back({losses.names()[i], losses.count_names()[i]});
  }
  if (ranks.world().alone()) return mine;
  if (phase.terms.empty()) {
    std::vector<std::string> lines;
    lines.reserve(mine.size());
    for (const auto& term : mine) lines.push_back(term.name + "\n" + term.count_name);
    for (const auto& text : ranks.agree_names(lines)) {
      const size_t line = text.find('\n');
      phase.terms.push_back({text.substr(0, line), text.substr(line + 1)});
    }
  }
  if (losses.names().empty()) return phase.terms;  // no samples, or no last stage
  const bool same = std::equal(phase.terms.begin(), phase.terms.end(), mine.begin(), mine.end(),
                               [](const auto& a, const auto& b) { return a.name == b.name; });
  if (!same) {
    throw Error("[train] the terms of a loss differ over ranks or batches (now " +
                join(losses.names()) +
                "); return the same terms for every batch, 0 where there is none");
  }
  return phase.terms;
}

// The number of elements that this rank measures.
double num_elements(const std::vector<FlatRange>& ranges) {
  int64_t count = 0;
  for (const FlatRange& range : ranges) count += range.size;
  return static_cast<double>(count);
}

// Per term: 1 if it had a graph in a microbatch of this rank, else 0.
std::vector<double> graphs_of(const LossMeter& losses, size_t num_terms) {
  std::vector<double> has(num_terms, 0.0);
  for (size_t i = 0; i < losses.sums().size(); ++i) {
    if (losses.has_graph(i)) has[i % num_terms] = 1.0;
  }
  return has;
}

// For each parameter of `all` 1 if this rank has reached its gradient, else 0.
std::vector<double> flags_of(const Objective& objective) {
  const auto* active = objective.gradients.active();
  std::vector<double> flags(objective.all.size(), 0.0);
  for (size_t i = 0; i < objective.places.size(); ++i) {
    if (active == nullptr || (*active)[i] != 0) flags[objective.places[i]] = 1.0;
  }
  return flags;
}

// Marks as active the parameters whose gradient some rank has reached.
void take_active(const std::vector<double>& flags, Objective& objective) {
  std::vector<uint8_t> active;
  for (const size_t place : objective.places) active.push_back(flags[place] > 0 ? 1 : 0);
  objective.gradients.set_active(active);
}

// The places in the row of the numbers of the objectives whose turn it is.
struct Places {
  std::vector<StatusRow::Part> squares, flush_counts, elements, active;
};

// Unscales and measures the gradients of each objective.
Places measure(const std::vector<Objective*>& objectives, const Parts& parts, StatusRow& row) {
  const bool report_flush = parts.plan.precision.report_flush;
  Places places;
  std::vector<MeasuredRanges> measured;
  for (Objective* objective : objectives) {
    measured.push_back(unscale_and_measure(objective->gradients.owned(), objective->spoken_for,
                                           parts.device, objective->scaler.scale(), report_flush));
    places.squares.push_back(row.add(measured.back().squares));
  }
  for (size_t i = 0; report_flush && i < measured.size(); ++i) {
    places.flush_counts.push_back(row.add({measured[i].flushed, measured[i].overflown}, Join::sum));
    places.elements.push_back(
        row.add(std::vector<double>{num_elements(objectives[i]->spoken_for)}));
  }
  for (const Objective* objective : objectives) {
    places.active.push_back(row.add(flags_of(*objective)));
  }
  return places;
}

double joint_norm(const std::vector<double>& squares) {
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

// The first microstep with a sum of the objective's terms that is not finite; -1: none.
int64_t first_bad(const Objective& objective, const std::vector<PhaseTerm>& terms,
                  const std::vector<double>& sums) {
  for (size_t i = 0; i < sums.size(); ++i) {
    if (std::isfinite(sums[i]) || objective.weight_of(terms[i % terms.size()].name) == 0) continue;
    return static_cast<int64_t>(i / terms.size());
  }
  return -1;
}

// Sets the objective's terms, each divided by its count, and their weighted sum. A mean over
// nothing does not exist: then NaN.
void take_terms(const Objective& objective, const std::vector<PhaseTerm>& terms,
                const GlobalBatch& batch, const std::vector<double>& sums, Status& status) {
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto& [name, count_name] = terms[i];
    const double weight = objective.weight_of(name);
    if (weight == 0.0) continue;
    const double count = batch.count(count_name);
    const double mean = count == 0 ? std::numeric_limits<double>::quiet_NaN() : sums[i] / count;
    status.loss += weight * mean;
    status.terms.emplace_back(name, mean);
    if (count != 0 || !status.uncounted.empty()) continue;
    status.uncounted_term = name;
    status.uncounted = count_name;
  }
}

}  // namespace

WindowStatus measure_window(Phase& phase, const torch::nn::Module& module, const Parts& parts,
                            const GlobalBatch& batch, const LossMeter& losses) {
  const Ranks& ranks = *parts.ranks;
  const bool report_flush = parts.plan.precision.report_flush;
  const auto objectives = phase.in_turn();
  StatusRow row(ranks, parts.device);
  const auto each = row.add(losses.sums(), Join::own);
  const auto terms = agreed_terms(phase, ranks, losses);
  const auto totals = row.add_column_sums(each, losses.sums(), terms.size());
  const Places places = measure(objectives, parts, row);
  const auto own_graphs = graphs_of(losses, terms.size());
  const auto graphs = row.add(own_graphs);
  // Looks for frozen parameters only if a term has no graph on this rank.
  const bool lacks_graph = std::count(own_graphs.begin(), own_graphs.end(), 0.0) > 0;
  const auto frozen = row.add(std::vector<double>{lacks_graph && has_frozen(module) ? 1.0 : 0.0});
  const bool stops = !ranks.world().alone() && parts.stop_requested();
  const auto stop = row.add(std::vector<double>{stops ? 1.0 : 0.0});
  std::vector<double> samples(static_cast<size_t>(ranks.data().size()), 0.0);
  if (ranks.pipeline().is_first()) {  // one stage of a replica counts its samples
    samples[static_cast<size_t>(ranks.data().rank())] = static_cast<double>(batch.local.size());
  }
  const auto samples_of_ranks = row.add(samples);
  const bool has_bubble = !ranks.pipeline().alone() && parts.device.is_cpu();
  std::optional<StatusRow::Part> windows, busy;
  if (has_bubble) {
    std::vector<double> seconds(static_cast<size_t>(ranks.world().size()), 0.0);
    const StageTime own = batch.local.size() > 0 ? phase.stage_time : StageTime();
    seconds[static_cast<size_t>(ranks.world().rank())] = own.seconds;
    windows = row.add(seconds);
    busy = row.add(std::vector<double>{own.seconds - own.waited});
  }
  row.read();

  const std::vector<double> sums = row.take(totals);
  WindowStatus window{.stop_requested = row.take(stop)[0] > 0,
                      .samples = row.take(samples_of_ranks)};
  if (windows) window.bubble = waiting_share(row.take(*windows), row.take(*busy)[0]);
  for (size_t i = 0; i < objectives.size(); ++i) {
    Objective& objective = *objectives[i];
    Status status{.norm = joint_norm(row.take(places.squares[i])),
                  .bad_microstep = first_bad(objective, terms, row.take(each))};
    take_terms(objective, terms, batch, sums, status);
    if (report_flush) {
      const auto counts = row.take(places.flush_counts[i]);
      const double elements = std::max(row.take(places.elements[i])[0], 1.0);
      status.flush_share = counts[0] / elements;
      status.overflow_share = counts[1] / elements;
    }
    window.objectives.push_back(std::move(status));
    if (ranks.world().alone()) continue;
    take_active(row.take(places.active[i]), objective);
  }
  const bool some_frozen = row.take(frozen)[0] > 0;
  check_graphs(phase, some_frozen, ranks, terms, row.take(graphs), sums);
  return window;
}

double waiting_share(const std::vector<double>& windows, double busy) {
  if (windows.empty()) return 0;
  const auto count = static_cast<double>(
      std::count_if(windows.begin(), windows.end(), [](double seconds) { return seconds > 0; }));
  const double all = count * *std::max_element(windows.begin(), windows.end());
  return all > 0 ? std::max(1 - busy / all, 0.0) : 0;
}

}  // namespace tanren
