// The levels O0 to O3 of mixed precision, as apex.amp had them, and the properties that result when
// keys override them. Used by the checks of a config and by the plan. Torch-free.
#pragma once

#include "tanren/config/run_config.h"

#include <string>
#include <vector>

namespace tanren {

// One row of the table. The words are those of the keys of the same names.
struct Level {
  std::string name;
  bool casts_weights = false;  // cast_model_type is 16 bits, else fp32
  bool patch_torch_functions = false;
  bool keep_batchnorm_fp32 = false;
  bool master_weights = false;
  bool scales_dynamically = false;  // in fp16; otherwise there is no loss scale
};

const std::vector<Level>& levels();
// The row of that name; null for "" and unknown names.
const Level* level_of(const PrecisionOptions& options);

// The properties that hold: those of the level, except where a key sets another value.
struct LevelProperties {
  // The type that forward computes in. Without a level: precision.mode, which may be "auto".
  std::string mode;
  std::string cast_model_type;  // of weights, buffers and fields of a batch
  bool patch_torch_functions = false;
  bool keep_batchnorm_fp32 = false;
  bool master_weights = false;
  std::string loss_scale;  // a word or a number, "auto" only without a level
};

// `options` must have passed the checks.
LevelProperties properties_of(const PrecisionOptions& options);

// Whether weights are stored in 16 bits.
bool has_narrow_weights(const PrecisionOptions& options);

}  // namespace tanren
