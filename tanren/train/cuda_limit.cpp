// The part of libtanren_cuda.so that sets the limit of a CUDA allocator in use (train/device.cpp).
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

// `share` of each device's memory, (0, 1].
extern "C" __attribute__((visibility("default"))) void tanren_cuda_limit_1(double share) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  for (c10::DeviceIndex i = 0; i < c10::cuda::device_count(); ++i) {
    c10::cuda::CUDACachingAllocator::setMemoryFraction(share, i);
  }
}
