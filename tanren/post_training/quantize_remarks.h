// What a quantisation's report tells beside its tables, each only where it is true. A pure function
// of the report and of what the report has no place for. Called by quantize_file.h.
#pragma once

#include "tanren/post_training/quantize_report.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct RemarkFacts {
  bool has_metric = true;             // over the calibration samples, so that layers could go back
  int64_t error_samples = 0;          // of which the errors of layers are
  bool computes_in_bf16 = false;      // what is not 8-bit
  bool has_8_bit_products = true;     // fast ones, which the kernels of 8-bit layers use
  bool has_vnni = true;               // the processor
  std::vector<std::string> constant;  // 8-bit weights of static that have read one number alone
  std::vector<std::pair<std::string, int64_t>> nan;  // scheme → evaluated samples with NaN
};

std::vector<std::string> remarks_of(const QuantizeReport& report, const RemarkFacts& facts);

}  // namespace tanren
