#include "tanren/dry/device_autocast.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace at::autocast {
namespace {

void add_device_lists(torch::Library& m) {
#define TANREN_DRY_LOWER(...) KERNEL_CPU(__VA_ARGS__, lower_precision_fp)
#define TANREN_DRY_FP32(...) KERNEL_CPU(__VA_ARGS__, fp32)
#define TANREN_DRY_FP32_RESULT(...) KERNEL_CPU(__VA_ARGS__, fp32_set_opt_dtype)
#define TANREN_DRY_WIDEST(...) KERNEL_CPU(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TANREN_DRY_LOWER)
  AT_FORALL_FP32(TANREN_DRY_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TANREN_DRY_FP32_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_CPU)
  AT_FORALL_PROMOTE(TANREN_DRY_WIDEST)
#undef TANREN_DRY_LOWER
#undef TANREN_DRY_FP32
#undef TANREN_DRY_FP32_RESULT
#undef TANREN_DRY_WIDEST
}

}  // namespace
}  // namespace at::autocast

namespace tanren {

void register_device_autocast() {
  // Never destroyed: the lists stay for later dry runs.
  static auto* const lists = [] {
    auto* const made =
        new torch::Library(torch::Library::IMPL, "aten", kDeviceAutocast, __FILE__, __LINE__);
    at::autocast::add_device_lists(*made);
    return made;
  }();
  (void)lists;
}

}  // namespace tanren
