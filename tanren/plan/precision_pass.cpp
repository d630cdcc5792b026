#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/config/levels.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <charconv>
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

double number_in(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  throw ConfigError("[plan] the loss scale \"" + text +
                    "\" is neither a number nor one of auto, dynamic, static, none");
}

void plan_scaling(const Request& request, Plan& plan) {
  const auto& asked = request.config.precision;
  auto& precision = plan.precision;
  const bool fp16 = precision.mode == Mode::fp16;
  std::string kind = properties_of(asked).loss_scale;
  if (kind == "auto") kind = fp16 ? "dynamic" : "none";
  const bool is_number = kind != "dynamic" && kind != "static" && kind != "none";
  precision.scaling = kind == "dynamic" ? Scaling::dynamic
                      : kind == "none"  ? Scaling::none
                                        : Scaling::fixed;
  precision.find_initial_scale =
      precision.scaling == Scaling::dynamic && asked.initial_scale == "auto";
  const std::string first = is_number ? kind : asked.initial_scale;
  precision.max_scale =
      asked.max_scale.value_or(asked.level.empty() ? PrecisionPlan().max_scale : 0x1p24);
  precision.initial_scale = precision.scaling == Scaling::none ? 1.0
                            : first == "auto"                  ? 65536.0
                                                               : number_in(first);
  if (precision.scaling == Scaling::dynamic) {
    precision.initial_scale = std::min(precision.initial_scale, precision.max_scale);
  }
  std::string reason;
  if (precision.scaling == Scaling::none) {
    reason = fp16 ? (asked.loss_scale == "auto" ? precision.level + ": " : "as asked; ") +
                        "small gradients may flush to zero"
                  : name(precision.mode) + " has fp32's exponent range or more";
  } else {
    reason = precision.find_initial_scale
                 ? "the first scale is found on the first window"
                 : fmt::format("starts at {}", to_text(precision.initial_scale));
    if (precision.scaling == Scaling::dynamic) {
      reason += fmt::format("; × {} after {} quiet updates, × {} on overflow, floor {}",
                            to_text(asked.growth_factor), to_text(asked.growth_interval),
                            to_text(asked.backoff_factor), to_text(asked.min_scale));
      if (precision.max_scale != PrecisionPlan().max_scale) {
        reason += ", ceiling " + to_text(precision.max_scale);
      }
    }
    if (!fp16) reason += "; a power of two changes nothing outside fp16";
  }
  plan.lines.push_back(
      {"loss_scale", is_number ? "static" : kind,
       asked.loss_scale == "auto" ? Source::planned : request.source("precision.loss_scale"),
       reason});
}

void plan_level(const PrecisionOptions& asked, PrecisionPlan& precision) {
  if (!asked.level.empty() && level_of(asked) == nullptr) {  // the config may not be validated
    throw ConfigError("[plan] precision.level \"" + asked.level +
                      "\" is unknown; one of O0, O1, O2, O3");
  }
  const LevelProperties level = properties_of(asked);
  precision.level = asked.level;
  if (level.mode != "auto") precision.mode = from_word<Mode>(level.mode);
  precision.cast_model_type = from_word<Mode>(level.cast_model_type);
  precision.patch_torch_functions = level.patch_torch_functions;
  precision.keep_batchnorm_fp32 = level.keep_batchnorm_fp32;
  precision.master_weights = level.master_weights;
  if (!asked.cast_model_outputs.empty()) {
    precision.cast_model_outputs = from_word<Mode>(asked.cast_model_outputs);
  } else if (has_narrow_weights(asked)) {
    precision.cast_model_outputs = Mode::fp32;
  }
}

// What a level does, in words.
std::string described(const PrecisionPlan& precision) {
  if (precision.mode == Mode::fp32) return "all in fp32";
  const std::string type = name(precision.mode);
  if (precision.patch_torch_functions) {
    return "operators cast to " + type + "; weights, gradients and optimizer stay fp32";
  }
  return fmt::format("weights, buffers and batches in {}{}; {}", type,
                     precision.keep_batchnorm_fp32 ? ", batch norms with weights in fp32" : "",
                     precision.master_weights
                         ? "gradients, optimizer and copies of the weights in fp32"
                         : "gradients and optimizer in " + type + ", too");
}

// A level is applied exactly or refused. This refuses one for which there is no LSTM here.
void check_recurrent(const Request& request, const PrecisionPlan& precision) {
  const bool has_kernel =
      precision.mode == Mode::fp32 || (precision.mode == Mode::bf16 && request.machine.cpu_bf16);
  if (has_kernel) return;
  throw ConfigError(fmt::format(
      "[plan] precision.level = \"{}\" in {}: there is no LSTM for it on {}; take "
      "precision.level = \"O0\"{}",
      precision.level, name(precision.mode),
      precision.mode == Mode::fp16 ? "the CPU" : "a CPU without avx512_bf16",
      request.config.precision.cast_model_type.empty() ? ""
                                                       : " without precision.cast_model_type"));
}

// A compiled graph computes in what it was exported with.
void check_graph_precision(const Request& request, const PrecisionPlan& precision) {
  const GraphFacts& graph = *request.profile.graph;
  const auto& asked = request.config.precision;
  const bool is_asked = asked.mode != "auto" && asked.mode != graph.precision;
  if (!is_asked && precision.level.empty() && asked.cast_model_type.empty()) return;
  throw ConfigError(fmt::format(
      "[plan] precision: {} is asked for, and the model is one compiled graph, exported in {}; set "
      "precision.mode = \"{}\" alone, or export it with precision=\"{}\"",
      is_asked                  ? "mode " + asked.mode
      : precision.level.empty() ? "cast_model_type"
                                : "level " + precision.level,
      graph.precision, graph.precision, is_asked ? asked.mode : "bf16"));
}

}  // namespace

int64_t weight_size(const PrecisionPlan& precision) {
  if (precision.mode == Mode::fp64) return 8;
  return precision.cast_model_type == Mode::fp32 ? 4 : 2;
}

int64_t gradient_size(const PrecisionPlan& precision) {
  return precision.master_weights ? 4 : weight_size(precision);
}

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
  plan_level(asked, precision);
  std::string reason = precision.level.empty() ? "as asked" : described(precision);
  if (request.profile.graph) {
    check_graph_precision(request, precision);
    precision.mode = from_word<Mode>(request.profile.graph->precision);
    reason = "what the graph was exported with";
  } else if (precision.level.empty() && asked.mode == "auto") {
    std::tie(precision.mode, reason) = choose(request.machine, cuda);
  } else {
    if (precision.mode == Mode::fp16 && !cuda && !request.machine.cpu_fp16) {
      reason += "; this CPU emulates fp16: expect it to be slower than fp32";
    }
    if (precision.mode == Mode::bf16 && !cuda && !request.machine.cpu_bf16) {
      reason += "; this CPU emulates bf16: expect it to be slower than fp32";
    }
    const ModelKind* kind = model_kind(request.config.model.kind);
    const bool is_recurrent = kind != nullptr && kind->is_recurrent;
    if (!precision.level.empty() && !cuda && is_recurrent) check_recurrent(request, precision);
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
  const bool is_mixed = precision.mode == Mode::bf16 || precision.mode == Mode::fp16;
  if (precision.level.empty() && is_mixed) {
    reason += "; parameters, gradients and optimizer stay fp32";
  }
  const bool is_chosen = precision.level.empty() && asked.mode == "auto";
  plan.lines.push_back({"precision",
                        precision.level.empty() ? name(precision.mode)
                                                : precision.level + ", " + name(precision.mode),
                        is_chosen ? Source::planned : Source::asked, reason});
  plan_scaling(request, plan);
  plan.lines.push_back({"matmul", name(precision.matmul), request.source("precision.matmul"),
                        !cuda ? "fp32 products; matters on CUDA only"
                        : precision.matmul == Matmul::highest
                            ? "fp32 products and convolutions in full fp32"
                            : "fp32 products and convolutions may use TF32 (10-bit mantissa)"});
}

}  // namespace tanren
