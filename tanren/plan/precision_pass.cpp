#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/plan/passes.h"

#include <tuple>
#include <utility>

namespace tanren {

namespace {

std::pair<Mode, std::string> choose(const Machine& machine, bool accelerated) {
  if (accelerated && machine.accelerators.bf16)
    return {Mode::bf16, "the GPU computes bf16 in hardware and it needs no loss scale"};
  if (accelerated)
    return {Mode::fp16, "the GPU has fp16 units and no bf16 ones; the loss is scaled"};
  if (machine.cpu_bf16) return {Mode::bf16, "the CPU has bf16 instructions (avx512_bf16 or amx)"};
  return {Mode::fp32, "the CPU has no bf16 instructions; emulating them would be slower"};
}

void plan_scaling(const Request& request, Plan& plan) {
  const auto& asked = request.config.precision;
  auto& precision = plan.precision;
  const bool fp16 = precision.mode == Mode::fp16;
  const std::string kind =
      asked.loss_scale == "auto" ? (fp16 ? "dynamic" : "none") : asked.loss_scale;
  precision.scaling = kind == "dynamic"  ? Scaling::dynamic
                      : kind == "static" ? Scaling::fixed
                                         : Scaling::none;
  precision.find_initial_scale =
      precision.scaling == Scaling::dynamic && asked.initial_scale == "auto";
  precision.initial_scale = precision.scaling == Scaling::none ? 1.0
                            : asked.initial_scale == "auto"    ? 65536.0
                                                               : std::stod(asked.initial_scale);
  std::string reason;
  if (precision.scaling == Scaling::none) {
    reason = fp16 ? "as asked; small gradients may flush to zero"
                  : name(precision.mode) + " has fp32's exponent range or more";
  } else {
    reason = precision.find_initial_scale
                 ? "the first scale is found on the first window"
                 : fmt::format("starts at {}", to_text(precision.initial_scale));
    if (precision.scaling == Scaling::dynamic) {
      reason += fmt::format("; × {} after {} quiet updates, × {} on overflow, floor {}",
                            to_text(asked.growth_factor), to_text(asked.growth_interval),
                            to_text(asked.backoff_factor), to_text(asked.min_scale));
    }
    if (!fp16) reason += "; a power of two changes nothing outside fp16";
  }
  plan.lines.push_back(
      {"loss_scale", kind,
       asked.loss_scale == "auto" ? Source::planned : request.source("precision.loss_scale"),
       reason});
}

}  // namespace

void plan_precision(const Request& request, Plan& plan) {
  const auto& asked = request.config.precision;
  auto& precision = plan.precision;
  precision.growth_factor = asked.growth_factor;
  precision.backoff_factor = asked.backoff_factor;
  precision.growth_interval = asked.growth_interval;
  precision.min_scale = asked.min_scale;
  precision.report_flush = asked.report_flush;
  precision.matmul = from_word<Matmul>(asked.matmul);
  const bool cuda = plan.device.device != "cpu";
  std::string reason = "as asked";
  if (asked.mode == "auto") {
    std::tie(precision.mode, reason) = choose(request.machine, cuda);
  } else {
    precision.mode = from_word<Mode>(asked.mode);
    if (precision.mode == Mode::fp16 && !cuda && !request.machine.cpu_fp16) {
      reason += "; this CPU emulates fp16: expect it to be slower than fp32";
    }
    if (precision.mode == Mode::bf16 && !cuda && !request.machine.cpu_bf16) {
      reason += "; this CPU emulates bf16: expect it to be slower than fp32";
    }
    const ModelKind* kind = model_kind(request.config.model.kind);
    const bool is_recurrent = kind != nullptr && kind->is_recurrent;
    if (precision.mode == Mode::fp16 && !cuda && is_recurrent) {
      precision.mode = Mode::fp32;
      reason = "fp16 as asked has no LSTM on the CPU: it computes in fp32";
    }
    if (precision.mode == Mode::bf16 && !cuda && !request.machine.cpu_bf16 && is_recurrent) {
      precision.mode = Mode::fp32;
      reason = "bf16 as asked has no LSTM on a CPU without avx512_bf16: it computes in fp32";
    }
    if (precision.mode == Mode::fp64) reason += "; for proofs of equality, not for speed";
  }
  if (precision.mode == Mode::bf16 || precision.mode == Mode::fp16) {
    reason += "; parameters, gradients and optimizer stay fp32";
  }
  plan.lines.push_back({"precision", name(precision.mode),
                        asked.mode == "auto" ? Source::planned : Source::asked, reason});
  plan_scaling(request, plan);
  plan.lines.push_back({"matmul", name(precision.matmul), request.source("precision.matmul"),
                        !cuda ? "fp32 products; matters on CUDA only"
                        : precision.matmul == Matmul::highest
                            ? "fp32 products in full fp32"
                            : "fp32 products may use TF32 (10-bit mantissa)"});
}

}  // namespace tanren
