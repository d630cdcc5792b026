// Functions on which samplers are compared, with minima that are known. For unit tests and
// study_bench; benchmarks/peers/study_optuna.py has the same functions.
#pragma once

#include "tanren/sweep/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {

struct SearchFunction {
  std::string name;
  Space space;
  double (*regret)(const SpacePoint& point);  // above the function's minimum
};

// Dixon and Szegő's function of two numbers; least 0.397887.
inline double branin_regret(const SpacePoint& p) {
  const double b = 5.1 / (4 * M_PI * M_PI), c = 5 / M_PI;
  const double parabola = p[1] - b * p[0] * p[0] + c * p[0] - 6;
  return parabola * parabola + 10 * (1 - 1 / (8 * M_PI)) * std::cos(p[0]) + 10 - 0.397887;
}

// Hartmann's function of six numbers in [0, 1]; least -3.32237.
inline double hartmann6_regret(const SpacePoint& p) {
  constexpr double kWeights[] = {1, 1.2, 3, 3.2};
  constexpr double kScales[4][6] = {{10, 3, 17, 3.5, 1.7, 8},
                                    {0.05, 10, 17, 0.1, 8, 14},
                                    {3, 3.5, 1.7, 10, 17, 8},
                                    {17, 8, 0.05, 10, 0.1, 14}};
  constexpr double kCentres[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                                     {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                                     {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                                     {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double distance = 0;
    for (int j = 0; j < 6; ++j) {
      const double way = p[static_cast<size_t>(j)] - kCentres[i][j];
      distance += kScales[i][j] * way * way;
    }
    sum += kWeights[i] * std::exp(-distance);
  }
  return 3.32237 - sum;
}

// A rate whose best value depends on the kind, an integer number of layers, and a momentum that
// only sgd has. Least 0, at rate 0.1, 5 layers, sgd and momentum 0.9.
inline double mixed_regret(const SpacePoint& p) {
  constexpr std::array<double, 3> kBest{-3, -1, -4}, kExtra{0.3, 0, 0.6};
  const auto kind = static_cast<size_t>(p[2]);
  const double rate = std::log10(p[0]) - kBest[kind], layers = p[1] - 5;
  const double momentum = kind == 1 ? p[3] - 0.9 : 0;
  return kExtra[kind] + 0.5 * rate * rate + 0.1 * layers * layers + 8 * momentum * momentum;
}

inline SearchFunction branin() {
  return {"branin",
          Space({{.key = "x", .low = -5.0, .high = 10.0}, {.key = "y", .low = 0.0, .high = 15.0}}),
          branin_regret};
}

inline SearchFunction hartmann6() {
  std::vector<DimensionOptions> six;
  for (int i = 0; i < 6; ++i) {
    six.push_back({.key = "x" + std::to_string(i), .low = 0.0, .high = 1.0});
  }
  return {"hartmann6", Space(std::move(six)), hartmann6_regret};
}

inline SearchFunction mixed() {
  return {"mixed",
          Space({{.key = "rate", .low = 1e-5, .high = 1.0, .scale = "log"},
                 {.key = "layers", .low = 1.0, .high = 8.0, .whole = true},
                 {.key = "kind", .values = {"adamw", "sgd", "lion"}},
                 {.key = "momentum", .low = 0.5, .high = 0.99, .when = "kind=sgd"}}),
          mixed_regret};
}

inline std::vector<SearchFunction> search_functions() { return {branin(), hartmann6(), mixed()}; }

// The records of a search by `sampler`, which sees each result before it proposes the next point.
// `sign`: -1 reports negated values.
inline std::vector<TrialRecord> search(const Sampler& sampler, const SearchFunction& function,
                                       int64_t trials, double sign = 1) {
  std::vector<TrialRecord> records;
  for (int64_t id = 0; id < trials; ++id) {
    TrialRecord record;
    record.id = id;
    record.point = sampler.propose(function.space, id, records);
    record.state = TrialState::ended;
    record.value = sign * function.regret(record.point);
    records.push_back(std::move(record));
  }
  return records;
}

// The least regret of a search.
inline double regret_of_search(const std::string& sampler, const SearchFunction& function,
                               uint64_t seed, int64_t trials) {
  const auto made = make_sampler({.kind = sampler, .seed = seed});
  double least = std::numeric_limits<double>::infinity();
  for (const TrialRecord& record : search(*made, function, trials)) {
    least = std::min(least, *record.value);
  }
  return least;
}

// Sorted regrets of searches with the seeds 0 to seeds - 1.
inline std::vector<double> regrets_of(const std::string& sampler, const SearchFunction& function,
                                      uint64_t seeds, int64_t trials) {
  std::vector<double> regrets;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    regrets.push_back(regret_of_search(sampler, function, seed, trials));
  }
  std::sort(regrets.begin(), regrets.end());
  return regrets;
}

// The mean of the two in the middle, if the number is even.
inline double median_of_sorted(const std::vector<double>& values) {
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace tanren::testing
