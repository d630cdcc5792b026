// A sweep without its processes: what Study costs, what TPE finds, what asha saves.
//   study_bench [times|regret|curves|all] [FOLDER]
// times: 1000 trials of an executor that answers at once, with the journal in FOLDER (its disk
// counts), and the replay of that journal. Goals: 1 ms of processor time a trial, 3 ms for the last
// of tpe, 0.5 s for the replay. regret: the best of 100 trials above the minimum, 20 seeds. Goals:
// median below that of random draws, and at most 1.5 times Optuna's, if TANREN_PEER_PYTHON names a
// Python that has it. curves: asha over recorded runs in 100 orders. Goal: in 90 of them, a loss
// within 5 % of the best for a quarter of the steps.
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/sweep/study.h"
#include "benchmarks/paired.h"
#include "benchmarks/peers/peer_process.h"
#include "tests/support/recorded_curves.h"
#include "tests/support/search_functions.h"

#include <ctime>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tanren::bench {

namespace {

using testing::SearchFunction;

constexpr int64_t kTrials = 1000, kSearchTrials = 100, kSteps = 900, kFirstRung = 60;
constexpr uint64_t kSeeds = 20, kOrders = 100;

const char* kept(bool is_kept) { return is_kept ? "kept" : "NOT KEPT"; }

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Cost {
  double processor = 0, wall = 0;  // seconds
  bool is_of_start = true;         // false: of a resumed trial, which is not sampled
};

Cost cost_of(const std::function<void()>& work) {
  const double before = processor_seconds();
  const double wall = seconds(work);
  return {processor_seconds() - before, wall};
}

// Does each trial of the study, and gives what each ask with its tell cost.
std::vector<Cost> run_all(Study& study, const SearchFunction& function) {
  std::vector<Cost> costs;
  for (bool goes_on = true; goes_on;) {
    bool is_of_start = false;
    Cost cost = cost_of([&] {
      const auto trial = study.ask();
      goes_on = trial.has_value();
      if (!goes_on) return;
      is_of_start = trial->begin == 0;
      study.tell(*trial, function.regret(study.records()[static_cast<size_t>(trial->id)].point));
    });
    cost.is_of_start = is_of_start;
    if (goes_on) costs.push_back(cost);
  }
  return costs;
}

void measure_times(const SearchFunction& function, StudyOptions options) {
  std::filesystem::remove(options.journal);
  std::vector<Cost> costs;
  {
    Study study(function.space, options);
    costs = run_all(study, function);
  }
  Cost all;
  for (const Cost& cost : costs) {
    all.processor += cost.processor;
    all.wall += cost.wall;
  }
  constexpr size_t kLast = 50;
  std::vector<double> last;
  for (size_t i = costs.size(); i-- > 0 && last.size() < kLast;) {
    if (costs[i].is_of_start) last.push_back(costs[i].processor);
  }
  size_t records = 0;
  const Cost replay = cost_of([&] { records = Study(function.space, options).records().size(); });
  if (records < static_cast<size_t>(kTrials)) throw std::runtime_error("the replay lacks trials");
  // In a population, the forks that replaced members count as trials, too.
  const double trial = all.processor / static_cast<double>(records);
  const double thousandth = spread(last).median;
  const bool is_tpe = options.sampler == "tpe";
  std::printf("%-9s %-6s %-5s %9.3f %9.3f %9.3f %9.3f  %s\n", function.name.c_str(),
              options.sampler.c_str(), options.scheduler.c_str(), 1e3 * trial, 1e3 * thousandth,
              1e3 * all.wall / static_cast<double>(records), replay.wall,
              kept((is_tpe ? thousandth <= 3e-3 : trial <= 1e-3) && replay.wall <= 0.5));
  std::fflush(stdout);
}

constexpr std::pair<const char*, const char*> kKinds[] = {
    {"random", "none"}, {"tpe", "none"}, {"random", "asha"}, {"tpe", "asha"}, {"random", "pbt"}};

void measure_times(const std::filesystem::path& folder) {
  std::printf(
      "%ld trials, answered at once: processor ms of a trial (mean), of one of the last 50 starts "
      "(median), wall ms of a trial, wall s of the replay\n",
      static_cast<long>(kTrials));
  const StudyOptions plain{.trials = kTrials,
                           .steps = kSteps,
                           .first_rung = kFirstRung,
                           .interval = 180,
                           .journal = folder / "journal.jsonl"};
  for (const SearchFunction& function : {testing::mixed(), testing::hartmann6()}) {
    for (const auto& [sampler, scheduler] : kKinds) {
      StudyOptions options = plain;
      options.sampler = sampler;
      options.scheduler = scheduler;
      measure_times(function, options);
    }
  }
}

// A point with all dimensions. Its value tells whether the peer's function is the same.
SpacePoint checked_point(const SearchFunction& function) {
  return function.space.point([&](size_t dimension) {
    return function.space.is_range(dimension) ? function.space.value_at(dimension, 0.3) : 1.0;
  });
}

std::string json_of(const SearchFunction& function, const SpacePoint& point) {
  nlohmann::ordered_json values;
  for (size_t i = 0; i < function.space.size(); ++i) {
    const DimensionOptions& dimension = function.space.dimensions()[i];
    if (dimension.values.empty()) {
      values[dimension.key] = point[i];
    } else {
      values[dimension.key] = dimension.values[static_cast<size_t>(point[i])];
    }
  }
  return exact_json_text(values);
}

// Sorted regrets of Optuna's TPESampler with its defaults.
std::vector<double> peer_regrets(const std::string& python, const SearchFunction& function) {
  const SpacePoint point = checked_point(function);
  PeerProcess peer({python, TANREN_SOURCE_DIR "/benchmarks/peers/study_optuna.py", function.name,
                    std::to_string(kSearchTrials), json_of(function, point)});
  const double there = std::stod(peer.answer()), here = function.regret(point);
  if (!(std::abs(there - here) < 1e-9)) {
    throw std::runtime_error("the peer's " + function.name + " is another function");
  }
  std::vector<double> regrets;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) regrets.push_back(std::stod(peer.answer()));
  std::sort(regrets.begin(), regrets.end());
  return regrets;
}

void print_regrets(const std::string& function, const char* sampler,
                   const std::vector<double>& sorted) {
  std::printf("%-9s %-15s %9.2e %9.2e %9.2e %9.2e %9.2e\n", function.c_str(), sampler, sorted[0],
              sorted[sorted.size() / 4], testing::median_of_sorted(sorted),
              sorted[sorted.size() * 3 / 4], sorted.back());
}

void measure_regret() {
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  std::printf("regret of the best of %ld trials, %lu seeds: min, quarter, median, quarter, max\n",
              static_cast<long>(kSearchTrials), static_cast<unsigned long>(kSeeds));
  for (const SearchFunction& function : testing::search_functions()) {
    const auto random = testing::regrets_of("random", function, kSeeds, kSearchTrials);
    const auto tpe = testing::regrets_of("tpe", function, kSeeds, kSearchTrials);
    print_regrets(function.name, "random", random);
    print_regrets(function.name, "tpe", tpe);
    const double ours = testing::median_of_sorted(tpe);
    std::printf("%-9s tpe / random %.3f: %s (below 1)\n", function.name.c_str(),
                ours / testing::median_of_sorted(random),
                kept(ours < testing::median_of_sorted(random)));
    if (python != nullptr) {
      const auto peer = peer_regrets(python, function);
      const double ratio = ours / testing::median_of_sorted(peer);
      print_regrets(function.name, "Optuna's TPE", peer);
      std::printf("%-9s tpe / Optuna's TPE %.3f: %s (at most 1.5)\n", function.name.c_str(), ratio,
                  kept(ratio <= 1.5));
    }
    std::fflush(stdout);
  }
  if (python == nullptr) {
    std::printf("without Optuna: set TANREN_PEER_PYTHON to a Python with optuna==5.0.0\n");
  }
}

void measure_curves() {
  const auto curves = testing::read_curves(TANREN_SOURCE_DIR "/tests/fixtures/sweep_curves.json");
  const auto whole = static_cast<double>(curves.steps() * std::ssize(curves.losses));
  std::printf(
      "asha over %zu recorded runs in %lu orders: loss / that of the best whole run, and share of "
      "the steps of all whole runs (min, median, max)\n",
      curves.losses.size(), static_cast<unsigned long>(kOrders));
  std::vector<double> losses, shares;
  int good = 0;
  for (uint64_t seed = 0; seed < kOrders; ++seed) {
    const auto order = testing::random_order(curves.losses.size(), seed);
    const auto sweep = testing::replay(
        curves, order, {.kind = "asha", .first_rung = testing::kCurvesFirstRung, .reduction = 4});
    losses.push_back(sweep.best / curves.best());
    shares.push_back(static_cast<double>(sweep.steps) / whole);
    if (testing::is_as_promised(sweep, curves)) ++good;
  }
  const Spread loss = spread(losses), share = spread(shares);
  std::printf("loss %.3f %.3f %.3f, steps %.3f %.3f %.3f, both in %d orders: %s (90)\n", loss.min,
              loss.median, loss.max, share.min, share.median, share.max, good, kept(good >= 90));
}

}  // namespace

}  // namespace tanren::bench

int main(int argc, char** argv) {
  const auto word = tanren::bench::words(argc, argv);
  const std::string part = word(1, "all");
  const auto folder = std::filesystem::path(word(2, "study_bench_journal"));
  if (part == "all" || part == "times") {
    std::filesystem::create_directories(folder);
    tanren::bench::measure_times(folder);
    std::filesystem::remove_all(folder);
  }
  if (part == "all" || part == "regret") tanren::bench::measure_regret();
  if (part == "all" || part == "curves") tanren::bench::measure_curves();
  return 0;
}
