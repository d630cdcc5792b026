#include "tanren/base/metric_names.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, EvaluateOptions& o) {
  add("every", &o.every, Identity::evaluates,
      "Applied steps between evaluations; 0: only at the end.");
  add("batch", &o.batch, Identity::free, "Samples per evaluation batch; 0: the microbatch.");
  add("metrics", &o.metrics, Identity::free,
      "accuracy, top<k>; precision_, recall_ or f1_ with macro, micro or binary (of class 1); "
      "auroc, confusion_matrix; mse, mae, r2; perplexity, byte_perplexity, bits_per_byte, "
      "word_perplexity (of text); psnr, ssim (of pictures).");
  add("checkpoint", &o.checkpoint, Identity::free,
      "Weights that tanren eval reads: latest, best, step-<n>, or exported (model.safetensors).");
}

void check_evaluate(Problems& p, const EvaluateOptions& o) {
  p.count("evaluate.every", o.every, 0);
  p.count("evaluate.batch", o.batch, 0);
  std::set<std::string> seen;
  for (const auto& metric : o.metrics) {
    p.check(metric_named(metric).has_value(),
            "evaluate.metrics has \"" + metric + "\"; " + metric_advice(metric));
    p.check(seen.insert(metric).second, "evaluate.metrics has \"" + metric + "\" twice; drop one");
  }
}

void check_evaluated(Problems& p, const EvaluateOptions& o) {
  int64_t step = 0;
  p.check(
      o.checkpoint == "latest" || o.checkpoint == "best" || o.checkpoint == "exported" ||
          (o.checkpoint.starts_with("step-") && reads_as(o.checkpoint.substr(5), step) &&
           step >= 0),
      "evaluate.checkpoint is \"" + o.checkpoint + "\"; give latest, best, step-<n> or exported");
}

}  // namespace tanren
