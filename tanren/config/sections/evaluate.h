// [evaluate]: when the model is evaluated and what is measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct EvaluateOptions {
  int64_t every = 0;  // steps between evaluations; 0: only at the end
  int64_t batch = 0;  // samples per evaluation batch; 0: as training's microbatch
  std::vector<std::string> metrics = {"accuracy"};  // base/metric_names.h has them all
  std::string checkpoint = "latest";                // tanren eval: latest, best, step-<n>, exported
};

}  // namespace tanren
