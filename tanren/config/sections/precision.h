// [precision]: the types that the model computes in, and the loss scale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tanren {

struct PrecisionOptions {
  std::string mode = "auto";  // auto, fp32, bf16, fp16, fp64
  std::string level;          // O0, O1, O2, O3; empty: mode alone decides
  // These override the properties of the level.
  std::string cast_model_type;                // fp32, fp16, bf16
  std::optional<bool> patch_torch_functions;  // unset, here and below: the level's
  std::optional<bool> keep_batchnorm_fp32;
  std::optional<bool> master_weights;
  std::string cast_model_outputs;  // fp32, fp16, bf16; empty: fp32 if weights are of 16 bits
  // auto (dynamic for fp16, none otherwise), dynamic, static, none, or a number: static
  std::string loss_scale = "auto";
  std::string initial_scale = "65536";  // a number, or "auto": found on the first window
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;   // steps without overflow before the scale grows
  double min_scale = 1.0;           // floor: at it an overflow counts as a non-finite gradient
  std::optional<double> max_scale;  // ceiling; unset: 2^24 under a level, else 2^120
  bool report_flush = false;        // log the share of gradient elements fp16 would lose
  std::string matmul = "highest";   // fp32 matrix products: highest, high (TF32), medium
  bool cudnn_benchmark = false;     // time cuDNN's algorithms; not bitwise repeatable
};

}  // namespace tanren
