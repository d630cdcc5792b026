#include "tanren/config/problems.h"

#include "tanren/config/validate.h"

namespace tanren {

namespace {

void check_metrics(Problems& p, const EvaluateOptions& o) {
  std::set<std::string> seen;
  for (const auto& metric : o.metrics) {
    p.check(top_k_of(metric) > 0,
            "evaluate.metrics has \"" + metric + "\"; known are accuracy and top<k> (top5)");
    p.check(seen.insert(metric).second, "evaluate.metrics has \"" + metric + "\" twice; drop one");
  }
}

}  // namespace

int64_t top_k_of(const std::string& metric) {
  if (metric == "accuracy") return 1;
  int64_t k = 0;
  return metric.rfind("top", 0) == 0 && reads_as(metric.substr(3), k) && k > 0 ? k : 0;
}

void check_observation(Problems& p, const RunConfig& config) {
  p.count("evaluate.every", config.evaluate.every, 0);
  p.count("evaluate.batch", config.evaluate.batch, 0);
  check_metrics(p, config.evaluate);
  p.count("checkpoint.every", config.checkpoint.every, 0);
  p.count("checkpoint.keep", config.checkpoint.keep, 1);
  p.count("metrics.console_every", config.metrics.console_every, 1);
}

}  // namespace tanren
