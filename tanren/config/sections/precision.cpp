#include "tanren/base/text.h"
#include "tanren/config/fields.h"
#include "tanren/config/levels.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, PrecisionOptions& o) {
  add("mode", &o.mode, Identity::on_request,
      "Type of the computation: auto, fp32, bf16 or fp16 (autocast, fp32 parameters), fp64 (for "
      "verification).");
  add("level", &o.level,
      "O0, O1, O2 or O3 of apex.amp, in fp16; in bf16 if mode says so. Empty: mode alone decides.");
  add("cast_model_type", &o.cast_model_type,
      "Overrides the level: type of weights, buffers and batches: fp32, fp16, bf16.");
  add("patch_torch_functions", &o.patch_torch_functions,
      "Overrides the level: cast within forward, operator by operator (autocast).");
  add("keep_batchnorm_fp32", &o.keep_batchnorm_fp32,
      "Overrides the level: batch norms with weights stay fp32.");
  add("master_weights", &o.master_weights,
      "Overrides the level: fp32 gradients, and updates of fp32 copies of the weights.");
  add("cast_model_outputs", &o.cast_model_outputs, Identity::evaluates,
      "Type of the outputs that metrics see: fp32, fp16, bf16. Empty: fp32 if the weights are fp16 "
      "or bf16.");
  add("loss_scale", &o.loss_scale, Identity::on_request,
      "Loss scale: auto (dynamic for fp16, else none), dynamic, static, none, or a number "
      "(static).",
      TextKind::number_or_word);
  add("initial_scale", &o.initial_scale, Identity::on_request,
      "First loss scale, or \"auto\": found with the first batch.", TextKind::number_or_word);
  add("growth_factor", &o.growth_factor, Identity::on_request,
      "Dynamic scale: factor after growth_interval updates without overflow, in (1, 65536].");
  add("backoff_factor", &o.backoff_factor, Identity::on_request,
      "Dynamic scale: factor after an overflow, in (0, 1).");
  add("growth_interval", &o.growth_interval, Identity::on_request,
      "Updates without overflow before the scale grows, ≥ 1.");
  add("min_scale", &o.min_scale, Identity::on_request,
      "Lowest dynamic scale, > 0; an overflow at it counts as a non-finite gradient.");
  add("max_scale", &o.max_scale, Identity::on_request,
      "Highest dynamic scale. Unset: 2^24 with a level, else 2^120.");
  add("report_flush", &o.report_flush, Identity::on_request,
      "Log the share of gradient elements that fp16 would flush or overflow.");
  add("matmul", &o.matmul, Identity::on_request,
      "fp32 matrix products on CUDA: highest, high (TF32), medium.");
  add("cudnn_benchmark", &o.cudnn_benchmark, Identity::on_request,
      "Let cuDNN time its algorithms; such runs do not repeat bitwise.");
}

namespace {

bool is_narrow_type(const std::string& type) { return type == "fp16" || type == "bf16"; }

// The keys over a level, as its documentation has them and as apex refused some.
void check_properties(Problems& p, const PrecisionOptions& o, const Level& level) {
  const std::string of_level = "precision.level \"" + level.name + "\"";
  const std::string& type = o.cast_model_type;
  if (level.name == "O1") {
    p.check(type.empty() || type == "fp32",
            "precision.cast_model_type \"" + type + "\" does not go with " + of_level +
                ", which casts operators and keeps the weights fp32; take O2 or O3");
    p.check(!o.keep_batchnorm_fp32, "precision.keep_batchnorm_fp32 does not go with " + of_level +
                                        ", where all weights are fp32; drop it");
    p.check(!o.master_weights, "precision.master_weights does not go with " + of_level +
                                   ", where the weights are fp32 themselves; drop it");
  } else {
    p.check(!o.patch_torch_functions.value_or(false),
            "precision.patch_torch_functions does not go with " + of_level +
                "; take O1, which is that");
  }
  if (level.casts_weights) {
    p.check(type.empty() || is_narrow_type(type), "precision.cast_model_type \"" + type +
                                                      "\" leaves nothing of " + of_level +
                                                      "; take O0, or fp16 or bf16");
  }
  p.check(
      o.mode == "auto" || !is_narrow_type(type) || o.mode == type,
      fmt::format("precision.cast_model_type \"{}\" contradicts precision.mode \"{}\"; drop one "
                  "of them",
                  type, o.mode));
  if (level.name == "O1" || level.casts_weights || is_narrow_type(type)) return;
  p.check(!o.keep_batchnorm_fp32.value_or(false),
          "precision.keep_batchnorm_fp32 does nothing under " + of_level +
              ", whose weights are fp32; drop it");
  p.check(!o.master_weights.value_or(false), "precision.master_weights does nothing under " +
                                                 of_level + ", whose weights are fp32; drop it");
}

void check_level(Problems& p, const PrecisionOptions& o) {
  if (!o.level.empty()) {
    std::vector<std::string> names;
    for (const Level& level : levels()) names.push_back(level.name);
    p.one_of("precision.level", o.level, names);
  }
  for (const auto& [key, type] : {std::pair("cast_model_type", &o.cast_model_type),
                                  std::pair("cast_model_outputs", &o.cast_model_outputs)}) {
    if (!type->empty()) p.one_of(std::string("precision.") + key, *type, {"fp32", "fp16", "bf16"});
  }
  const auto needs_level = [&](const char* key, bool is_set) {
    p.check(!is_set || !o.level.empty(),
            fmt::format("precision.{} changes a property of a level; set precision.level", key));
  };
  needs_level("cast_model_type", !o.cast_model_type.empty());
  needs_level("patch_torch_functions", o.patch_torch_functions.has_value());
  needs_level("keep_batchnorm_fp32", o.keep_batchnorm_fp32.has_value());
  needs_level("master_weights", o.master_weights.has_value());
  const Level* level = level_of(o);
  if (level == nullptr) return;
  const bool is_wide = o.mode == "fp32" || o.mode == "fp64";
  if (level->name == "O0") {
    p.check(o.mode == "auto" || o.mode == "fp32" || o.mode == o.cast_model_type,
            "precision.level \"O0\" computes in fp32, and precision.mode is \"" + o.mode +
                "\"; drop one of them");
  } else {
    p.check(!is_wide,
            fmt::format("precision.level \"{}\" computes in 16 bits, and precision.mode is "
                        "\"{}\"; set it to fp16 or bf16, or take O0",
                        level->name, o.mode));
  }
  check_properties(p, o, *level);
}

void check_loss_scale(Problems& p, const PrecisionOptions& o) {
  double fixed = 0, first = 0;
  if (reads_as(o.loss_scale, fixed)) {
    p.check(fixed >= 1e-37 && fixed < 1e38,
            "precision.loss_scale is " + o.loss_scale + "; give a number from 1e-37 to 1e38");
    p.check(!o.max_scale,
            "precision.max_scale does nothing while precision.loss_scale is a number; "
            "drop one of them");
    p.check(o.initial_scale == PrecisionOptions().initial_scale,
            "precision.initial_scale does nothing while precision.loss_scale is a number; drop one "
            "of them");
  } else {
    p.one_of("precision.loss_scale", o.loss_scale, {"auto", "dynamic", "static", "none"});
  }
  p.positive("precision.max_scale", o.max_scale.value_or(1));
  const double most = o.max_scale.value_or(o.level.empty() ? 0x1p120 : 0x1p24);
  p.check(!(most > 0) || !(o.min_scale > most),
          fmt::format("precision.min_scale {} is above precision.max_scale {}; lower it",
                      to_text(o.min_scale), to_text(most)));
  const bool is_default =
      o.initial_scale == PrecisionOptions().initial_scale;  // then it is lowered
  p.check(!reads_as(o.initial_scale, first) || is_default || !(first < 1e38) || !(most > 0) ||
              first <= most,
          fmt::format("precision.initial_scale {} is above precision.max_scale {}; lower it",
                      o.initial_scale, to_text(most)));
  p.check(!o.report_flush || !has_narrow_weights(o) || properties_of(o).master_weights,
          "precision.report_flush sees nothing where gradients are of 16 bits already "
          "(precision.level \"" +
              o.level + "\"); drop it");
  p.check(o.mode != "fp64" || o.loss_scale == "auto" || o.loss_scale == "none",
          "precision.loss_scale \"" + o.loss_scale +
              "\" makes no sense with precision.mode \"fp64\"; drop it");
}

}  // namespace

void check_precision(Problems& p, const PrecisionOptions& o) {
  p.one_of("precision.mode", o.mode, {"auto", "fp32", "bf16", "fp16", "fp64"});
  check_level(p, o);
  check_loss_scale(p, o);
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
}

}  // namespace tanren
