// Paired blocks: two things measured in turn (A B A B …) in one run, so that drift of the machine
// does not favour either. Ratios are per pair; the A/A spread of the same run shows the noise.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace tanren::bench {

struct Spread {
  double min = 0, median = 0, max = 0;
};

inline Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

inline double seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Paired {
  Spread ratio;       // a / b
  Spread difference;  // a - b, in the unit of the measure
  Spread b;
};

// Calls a() then b() `pairs` times, after one uncounted pair. Each returns one figure.
inline Paired pair_up(int pairs, const std::function<double()>& a,
                      const std::function<double()>& b) {
  a();
  b();
  std::vector<double> ratios, differences, seconds_of_b;
  for (int i = 0; i < pairs; ++i) {
    const double one = a(), other = b();
    ratios.push_back(one / other);
    differences.push_back(one - other);
    seconds_of_b.push_back(other);
  }
  return {spread(ratios), spread(differences), spread(seconds_of_b)};
}

inline void print(const std::string& what, const Paired& result, double unit,
                  const char* unit_name) {
  std::printf("%-44s ratio min %.3f median %.3f max %.3f; difference median %+.1f %s (of %.1f)\n",
              what.c_str(), result.ratio.min, result.ratio.median, result.ratio.max,
              result.difference.median * unit, unit_name, result.b.median * unit);
}

// Reads a program's arguments: word(i, otherwise) is argument i, or `otherwise` if there are fewer.
inline auto words(int argc, char** argv) {
  return [=](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
}

}  // namespace tanren::bench
