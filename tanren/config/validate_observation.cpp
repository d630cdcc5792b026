#include "tanren/config/problems.h"

#include "tanren/base/text.h"
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

void check_generate(Problems& p, const GenerateOptions& o) {
  p.within("generate.tokens", static_cast<double>(o.tokens), 0, 1 << 20, true);
  p.not_negative("generate.temperature", o.temperature);
  p.within("generate.top_k", static_cast<double>(o.top_k), 0, kAbsurdWidth, false);
  p.check(o.top_p > 0 && o.top_p <= 1,
          "generate.top_p is " + to_text(o.top_p) + "; it must lie in (0, 1]");
  p.at_least("generate.seed", o.seed, 0);
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
  check_generate(p, config.generate);
}

}  // namespace tanren
