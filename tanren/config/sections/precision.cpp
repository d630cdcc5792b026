#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, PrecisionOptions& o) {
  add("mode", &o.mode, Identity::on_request,
      "auto, fp32, bf16, fp16 (autocast, fp32 parameters), fp64 (proofs).");
  add("loss_scale", &o.loss_scale, Identity::on_request,
      "auto (dynamic for fp16, else none), dynamic, static, none.");
  add("initial_scale", &o.initial_scale, Identity::on_request,
      "First loss scale, or \"auto\": found on the first window.", TextKind::number_or_word);
  add("growth_factor", &o.growth_factor, Identity::on_request,
      "Dynamic scale: factor after growth_interval quiet updates, in (1, 65536].");
  add("backoff_factor", &o.backoff_factor, Identity::on_request,
      "Dynamic scale: factor after an overflow, in (0, 1).");
  add("growth_interval", &o.growth_interval, Identity::on_request,
      "Quiet updates before the scale grows, ≥ 1.");
  add("min_scale", &o.min_scale, Identity::on_request,
      "Floor, > 0; at it an overflow counts as a non-finite gradient.");
  add("report_flush", &o.report_flush, Identity::on_request,
      "Log the share of gradient elements that fp16 would flush or overflow.");
  add("matmul", &o.matmul, Identity::on_request,
      "fp32 matrix products on CUDA: highest, high (TF32), medium.");
  add("cudnn_benchmark", &o.cudnn_benchmark, Identity::on_request,
      "Let cuDNN time its algorithms; such runs do not repeat bitwise.");
}

void check_precision(Problems& p, const PrecisionOptions& o) {
  p.one_of("precision.mode", o.mode, {"auto", "fp32", "bf16", "fp16", "fp64"});
  p.one_of("precision.loss_scale", o.loss_scale, {"auto", "dynamic", "static", "none"});
  p.one_of("precision.matmul", o.matmul, {"highest", "high", "medium"});
  double scale = 0;
  p.check(
      o.initial_scale == "auto" || (reads_as(o.initial_scale, scale) && scale > 0 && scale < 1e38),
      "precision.initial_scale is \"" + o.initial_scale +
          "\"; give a positive number below 1e38 or \"auto\"");
  p.check(o.initial_scale != "auto" || o.loss_scale != "static",
          "precision.initial_scale \"auto\" needs a dynamic loss scale; give a number");
  p.check(o.growth_factor > 1 && o.growth_factor <= 65536,
          fmt::format("precision.growth_factor is {}; it must lie in (1, 65536]",
                      to_text(o.growth_factor)));
  p.check(o.backoff_factor > 0 && o.backoff_factor < 1,
          fmt::format("precision.backoff_factor is {}; it must lie in (0, 1)",
                      to_text(o.backoff_factor)));
  p.count("precision.growth_interval", o.growth_interval, 1);
  p.positive("precision.min_scale", o.min_scale);
  p.check(!(scale > 0) || !(o.min_scale > scale),
          fmt::format("precision.min_scale {} is above precision.initial_scale {}; lower it",
                      to_text(o.min_scale), o.initial_scale));
  p.check(o.mode != "fp64" || o.loss_scale == "auto" || o.loss_scale == "none",
          "precision.loss_scale \"" + o.loss_scale +
              "\" makes no sense with precision.mode \"fp64\"; drop it");
}

}  // namespace tanren
