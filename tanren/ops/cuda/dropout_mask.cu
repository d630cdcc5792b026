#include "tanren/ops/cuda/dropout_mask.h"

#include <algorithm>

namespace tanren::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 16;

__global__ void draw(MaskCall call, int64_t total) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < total;
       i += stride) {
    draw_block(call, i);
  }
}

}  // namespace

const char* start_mask(const MaskCall& call) {
  const int64_t total = num_blocks(call);
  if (total == 0) return nullptr;
  const int64_t blocks = std::min((total + kThreads - 1) / kThreads, kMostBlocks);
  draw<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(call.stream)>>>(
      call, total);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace tanren::cuda
