#include "tanren/post_training/quantize_remarks.h"

#include "tanren/base/names.h"
#include "tanren/base/text.h"

#include <algorithm>

namespace tanren {

namespace {

bool is_8_bit_name(const std::string& name) { return name != "fp32" && name != "bf16"; }

// Schemes whose products are of bytes, and which took longer than fp32 for 8 samples.
std::vector<std::string> slower_than_fp32(const QuantizeReport& report) {
  std::vector<std::string> names;
  for (const SchemeResult& scheme : report.schemes) {
    const bool has_products = scheme.name == "dynamic" || scheme.name == "static";
    if (!has_products || !scheme.not_measured.empty()) continue;
    if (scheme.ratio_8 && scheme.ratio_8->median > 1) names.push_back(scheme.name);
  }
  return names;
}

}  // namespace

std::vector<std::string> remarks_of(const QuantizeReport& report, const RemarkFacts& facts) {
  std::vector<std::string> remarks;
  bool is_measured = false;
  int64_t put_back = 0;
  for (const SchemeResult& scheme : report.schemes) {
    if (!is_8_bit_name(scheme.name)) continue;
    is_measured = is_measured || scheme.not_measured.empty();
    put_back += scheme.layers_kept;
  }
  if (!facts.has_metric) {
    remarks.push_back(fmt::format(
        "the {} has no value over the calibration samples, so no layer goes back to fp32",
        report.metric));
  } else if (put_back > 0) {
    remarks.push_back(fmt::format("layers went back to fp32 by the {} of the calibration samples",
                                  report.metric));
  }
  if (!report.layers.empty() && facts.error_samples < report.calibration_samples) {
    remarks.push_back(fmt::format("errors of layers are of the first {} calibration samples",
                                  to_text(facts.error_samples)));
  }
  if (is_measured && facts.computes_in_bf16) {
    remarks.emplace_back("what is not 8-bit computes in bf16 under the 8-bit schemes");
  }
  const auto slower = slower_than_fp32(report);
  if (!facts.has_8_bit_products && !slower.empty()) {
    remarks.push_back(fmt::format("{}, and without it {} slower than fp32 for 8 samples",
                                  facts.has_vnni
                                      ? "the products of bytes do not use this processor's VNNI"
                                      : "this processor lacks AVX512-VNNI",
                                  join(slower, " and ") + (slower.size() == 1 ? " is" : " are")));
  }
  for (const std::string& name : facts.constant) {
    remarks.push_back(name +
                      " has read one number alone while it was calibrated, and static clips all "
                      "others; quantize.keep leaves it in fp32");
  }
  for (const auto& [name, samples] : facts.nan) {
    if (samples == 0) continue;
    remarks.push_back(fmt::format("{} answers {} of the {} evaluated samples with NaN", name,
                                  to_text(samples), to_text(report.evaluated_samples)));
  }
  return remarks;
}

}  // namespace tanren
