// [precision]: the types that the model computes in, and the loss scale.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

struct PrecisionOptions {
  std::string mode = "auto";  // auto, fp32, bf16, fp16, fp64
  std::string loss_scale =
      "auto";  // auto (dynamic for fp16, none otherwise), dynamic, static, none
  std::string initial_scale = "65536";  // a number, or "auto": found on the first window
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // steps without overflow before the scale grows
  double min_scale = 1.0;          // floor: at it an overflow counts as a non-finite gradient
  bool report_flush = false;       // log the share of gradient elements fp16 would lose
  std::string matmul = "highest";  // fp32 matrix products: highest, high (TF32), medium
  bool cudnn_benchmark = false;    // time cuDNN's algorithms; not bitwise repeatable
};

}  // namespace tanren
