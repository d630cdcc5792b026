#include "tanren/config/levels.h"

#include <algorithm>

namespace tanren {

namespace {

bool is_narrow(const std::string& type) { return type == "fp16" || type == "bf16"; }

// The 16-bit type of a level: fp16, as in apex, unless precision.mode is bf16.
std::string narrow_type(const PrecisionOptions& options) {
  return options.mode == "bf16" ? "bf16" : "fp16";
}

}  // namespace

const std::vector<Level>& levels() {
  static const std::vector<Level> rows = {
      {.name = "O0"},
      {.name = "O1", .patch_torch_functions = true, .scales_dynamically = true},
      {.name = "O2",
       .casts_weights = true,
       .keep_batchnorm_fp32 = true,
       .master_weights = true,
       .scales_dynamically = true},
      {.name = "O3", .casts_weights = true}};
  return rows;
}

const Level* level_of(const PrecisionOptions& options) {
  const auto found = std::find_if(levels().begin(), levels().end(),
                                  [&](const Level& row) { return row.name == options.level; });
  return found == levels().end() ? nullptr : &*found;
}

LevelProperties properties_of(const PrecisionOptions& options) {
  LevelProperties result{.mode = options.mode,
                         .cast_model_type = options.mode == "fp64" ? "fp64" : "fp32",
                         .patch_torch_functions = true,
                         .loss_scale = options.loss_scale};
  const Level* level = level_of(options);
  if (level == nullptr) return result;
  const std::string type = !options.cast_model_type.empty() ? options.cast_model_type
                           : level->casts_weights           ? narrow_type(options)
                                                            : "fp32";
  result.cast_model_type = type;
  result.patch_torch_functions =
      options.patch_torch_functions.value_or(level->patch_torch_functions);
  result.mode = result.patch_torch_functions ? narrow_type(options) : type;
  result.keep_batchnorm_fp32 = options.keep_batchnorm_fp32.value_or(level->keep_batchnorm_fp32);
  result.master_weights = options.master_weights.value_or(level->master_weights);
  if (options.loss_scale == "auto") {
    const bool scales = level->scales_dynamically && result.mode == "fp16";
    result.loss_scale = scales ? "dynamic" : "none";
  }
  return result;
}

bool has_narrow_weights(const PrecisionOptions& options) {
  return is_narrow(properties_of(options).cast_model_type);
}

}  // namespace tanren
