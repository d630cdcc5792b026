// The remarks of a quantisation's report, each made only if it is true. A pure function of the
// report and of facts that the report does not contain. Called by quantize_file.h.
#pragma once

#include "tanren/post_training/quantize_report.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct RemarkFacts {
  bool has_metric = true;             // the calibration samples have one; layers could go back
  int64_t error_samples = 0;          // samples on which errors of layers were measured
  bool computes_in_bf16 = false;      // operators that are not 8-bit
  bool has_8_bit_products = true;     // 8-bit layers use fast kernels
  bool has_vnni = true;               // the processor
  std::vector<std::string> constant;  // 8-bit weights of static that read only one number
  std::vector<std::pair<std::string, int64_t>> nan;  // scheme → evaluated samples with NaN
};

std::vector<std::string> remarks_of(const QuantizeReport& report, const RemarkFacts& facts);

}  // namespace tanren
