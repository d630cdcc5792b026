#include "tanren/base/metric_names.h"
#include "tanren/base/text.h"
#include "tanren/config/problems.h"

namespace tanren {

namespace {

void check_metrics(Problems& p, const EvaluateOptions& o) {
  std::set<std::string> seen;
  for (const auto& metric : o.metrics) {
    p.check(metric_named(metric).has_value(),
            "evaluate.metrics has \"" + metric + "\"; " + metric_advice(metric));
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
  p.within("generate.num_beams", static_cast<double>(o.num_beams), 1, 1024, true);
  p.within("generate.stop_token", static_cast<double>(o.stop_token), -1, kAbsurdWidth, false);
  const GenerateOptions plain;
  if (o.num_beams > 1) {
    p.check(o.temperature == plain.temperature && o.top_k == plain.top_k &&
                o.top_p == plain.top_p && o.seed == plain.seed,
            "generate.num_beams above 1 draws nothing; drop generate.temperature, top_k, top_p and "
            "seed, or set num_beams = 1");
  }
  p.check(o.length_penalty == plain.length_penalty || (o.num_beams > 1 && o.stop_token >= 0),
          "generate.length_penalty has no meaning where all texts are of one length; set "
          "generate.num_beams above 1 and generate.stop_token, or drop it");
}

}  // namespace

void check_observation(Problems& p, const RunConfig& config) {
  p.count("evaluate.every", config.evaluate.every, 0);
  p.count("evaluate.batch", config.evaluate.batch, 0);
  check_metrics(p, config.evaluate);
  p.count("checkpoint.every", config.checkpoint.every, 0);
  p.count("checkpoint.keep", config.checkpoint.keep, 1);
  p.count("metrics.console_every", config.metrics.console_every, 1);
  p.count("metrics.tensorboard_every", config.metrics.tensorboard_every, 1);
  check_generate(p, config.generate);
}

}  // namespace tanren
