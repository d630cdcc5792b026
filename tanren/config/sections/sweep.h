// [sweep]: which trials of a config search for good values of its keys, and how they are ranked and
// stopped early. A run ignores the section. Programs use DimensionOptions for a Space, too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct DimensionOptions {           // [[sweep.space]]
  std::string key;                  // whose values are searched, such as "optimizer.learning_rate"
  std::optional<double> low, high;  // a range, both ends included
  std::string scale = "linear";     // of a range: linear, log
  bool whole = false;               // of a range: whole numbers only
  std::optional<int64_t> points;    // of a range in a grid: how many, ends included
  std::vector<std::string> values;  // instead of a range: choices, as --set takes them
  std::string when;  // "KEY=VALUE": the dimension exists only in trials whose KEY has VALUE
  bool operator==(const DimensionOptions&) const = default;
};

struct SweepOptions {
  int64_t trials = 0;                // 0: all points of a grid
  std::string metric = "loss";       // ranks trials: loss, or one of evaluate.metrics
  std::string mode = "auto";         // auto (by the metric), min, max
  std::string sampler = "tpe";       // grid, random, tpe
  std::string scheduler = "none";    // none, asha, pbt, external
  int64_t first_rung = 0;            // asha: steps of the first rung; 0: evaluate.every
  int64_t reduction = 4;             // asha: one in this many trials continues to the next rung
  int64_t interval = 0;              // pbt: steps between exchanges; 0: evaluate.every
  int64_t concurrent = 0;            // trials at a time; 0: one per device, 1 without devices
  std::vector<std::string> devices;  // run.device of the trials, in turn; empty: that of the file
  int64_t timeout = 600;             // seconds without a sign of life; 0: a trial may take any time
  int64_t keep = 3;                  // number of the best trials whose checkpoints and weights stay
  std::string find;  // learning_rate: the verb sweep finds that, without trials; empty: it searches
  int64_t confirm = 0;  // number of other seeds that repeat the best trials at the end; 0: none
  std::vector<DimensionOptions> space;
};

}  // namespace tanren
