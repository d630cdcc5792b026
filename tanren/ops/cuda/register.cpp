// The part of libtanren_cuda.so that contains kernels: its function registers them with torch's
// dispatcher.
#include "tanren/ops/cuda/dropout_mask.h"
#include "tanren/ops/dropout_mask.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

namespace tanren {

namespace {

at::Tensor dropout_mask_on_cuda(const at::Tensor& ids, at::IntArrayRef sizes, int64_t key,
                                int64_t threshold, bool is_attention) {
  const c10::cuda::CUDAGuard on_device(ids.device());
  at::Tensor mask = at::empty(sizes, ids.options().dtype(at::kBool));
  if (mask.numel() == 0) return mask;
  const at::Tensor dense = ids.contiguous();
  cuda::MaskCall call{.ids = dense.const_data_ptr<int64_t>(),
                      .mask = mask.mutable_data_ptr<bool>(),
                      .samples = sizes[0],
                      .rows = is_attention ? sizes[1] * sizes[2] : 1,
                      .columns = 0,
                      .heads = is_attention ? sizes[1] : 1,
                      .rows_of_head = is_attention ? sizes[2] : 1,
                      .row_blocks = kRowDraws / 4,
                      .key = static_cast<uint64_t>(key),
                      .threshold = static_cast<uint32_t>(threshold),
                      .stream = c10::cuda::getCurrentCUDAStream().stream()};
  call.columns = mask.numel() / call.samples / call.rows;
  const char* error = cuda::start_mask(call);
  TORCH_CHECK(error == nullptr, "tanren::dropout_mask: ", error);
  return mask;
}

}  // namespace

}  // namespace tanren

// Change the number in the name whenever an operator's schema changes.
extern "C" __attribute__((visibility("default"))) void tanren_cuda_kernels_1() {
  static auto* const kernels = new torch::Library(torch::Library::IMPL, "tanren",
                                                  c10::DispatchKey::CUDA, __FILE__, __LINE__);
  kernels->impl("dropout_mask", &tanren::dropout_mask_on_cuda);
}
