// Forecasts memory for variations of a plan: peaks by microbatch and length, and what each
// alternative would save and cost. For `tanren plan`.
#pragma once

#include "tanren/base/text.h"
#include "tanren/forecast/fit_memory.h"

#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct MemoryForecast {
  struct Row {
    int64_t microbatch = 0;
    std::vector<std::optional<int64_t>> peaks;  // bytes, by lengths; none: it cannot run
  };
  struct Alternative {
    std::string what;  // as written in the config
    int64_t peak_bytes = 0;
    std::string cost;
  };
  MemoryPrediction planned;
  int64_t microbatch = 0, length = 0;  // planned
  int64_t room_bytes = 0;              // left by the limit; 0: no limit
  int64_t evaluation_bytes = 0;        // peak of an evaluation; 0: unknown, or there is none
  std::string unknown;                 // why nothing is predicted; empty: it was predicted
  std::string evaluation_unknown;      // the same for an evaluation
  std::vector<int64_t> lengths;        // tokens per sample; one 0: no sequences
  std::vector<Row> rows;
  std::vector<Alternative> alternatives;  // that need less memory
  // For a run in stages: one entry per stage. Then only `microbatch`, `length` and `room_bytes` are
  // set besides.
  std::vector<StagePrediction> stages;
};

// Takes some dozens of dry runs; for a model that cannot run dry, two real steps for each
// alternative, and the table has one length. A setting that the model does not accept, or fails at,
// is marked unknown and is no error.
MemoryForecast memory_forecast(const FitInput& input, const Fitted& fitted);

std::string to_text(const MemoryForecast& forecast);
// One JSON object, indented by two.
std::string to_json(const MemoryForecast& forecast);

}  // namespace tanren
