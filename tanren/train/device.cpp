#include "tanren/train/device.h"

#include "tanren/base/cuda_plugin.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/precision/half_convolution.h"

#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/AllocatorConfig.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace tanren {

namespace {

// Memory, name and capability of each device, read from the driver without creating a context.
// torch's own query would create one, and torch's allocator would then read its settings before the
// plan has written them.
Accelerators of_driver(int64_t count) {
  Accelerators found;
  found.bytes.resize(static_cast<size_t>(count), 0);
  found.names.resize(static_cast<size_t>(count));
  found.capabilities.resize(static_cast<size_t>(count), 0);
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return found;
  const auto start = reinterpret_cast<int (*)(unsigned)>(::dlsym(driver, "cuInit"));
  const auto get = reinterpret_cast<int (*)(int*, int)>(::dlsym(driver, "cuDeviceGet"));
  const auto total =
      reinterpret_cast<int (*)(size_t*, int)>(::dlsym(driver, "cuDeviceTotalMem_v2"));
  const auto name = reinterpret_cast<int (*)(char*, int, int)>(::dlsym(driver, "cuDeviceGetName"));
  const auto attribute =
      reinterpret_cast<int (*)(int*, int, int)>(::dlsym(driver, "cuDeviceGetAttribute"));
  constexpr int kCapabilityMajor = 75;
  if (start == nullptr || get == nullptr || total == nullptr || start(0) != 0) return found;
  for (int64_t i = 0; i < count; ++i) {
    int device = 0;
    if (get(&device, static_cast<int>(i)) != 0) continue;
    size_t bytes = 0;
    if (total(&bytes, device) == 0) {
      found.bytes[static_cast<size_t>(i)] = static_cast<int64_t>(bytes);
    }
    std::array<char, 256> text{};
    if (name != nullptr && name(text.data(), static_cast<int>(text.size()) - 1, device) == 0) {
      found.names[static_cast<size_t>(i)] = text.data();
    }
    int major = 0;
    if (attribute != nullptr && attribute(&major, kCapabilityMajor, device) == 0) {
      found.capabilities[static_cast<size_t>(i)] = major;
    }
  }
  return found;  // the driver stays loaded: torch is about to use it
}

// Without the plugin's kernels, torch's operators do the same more slowly. Registers once for all
// probes, because torch warns about a second registration.
void register_cuda_kernels() {
  [[maybe_unused]] static const bool done = [] {
    const CudaPlugin& plugin = cuda_plugin();
    if (plugin.handle == nullptr) return false;
    void* const found = ::dlsym(plugin.handle, "tanren_cuda_kernels_1");
    if (found != nullptr) reinterpret_cast<void (*)()>(found)();
    return found != nullptr;
  }();
}

}  // namespace

Accelerators probe_cuda() {
  if (::access("/dev/nvidiactl", F_OK) != 0) return {};
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    log(std::string("[device] an NVIDIA driver is here, but libtorch_cuda.so does not load (") +
        ::dlerror() + "); scripts/setup --cuda fetches what it needs");
    return {};
  }
  const auto& hooks = at::detail::getCUDAHooks();
  if (!at::Context::hasCUDA()) {
    log("[device] CUDA cannot be used any more: the program asked torch for it before tanren "
        "loaded "
        "libtorch_cuda.so (torch::manual_seed and torch::cuda do); call tanren::probe_cuda() "
        "first");
    return {};
  }
  register_cuda_kernels();
  Accelerators found = of_driver(static_cast<unsigned char>(hooks.deviceCount()));
  // Reading the capability through torch needs CUDA headers. cuDNN's support of bf16 convolutions
  // is all that planning needs.
  found.bf16 = hooks.supportsBFloat16ConvolutionWithCuDNNv8();
  return found;
}

// The allocator reads its share from its settings when the first tensor is made on a device. A
// later change needs CUDA's headers, so the plugin's function makes it, on all devices.
void limit_cuda(double share) {
  c10::CachingAllocator::setAllocatorSettings("per_process_memory_fraction:" +
                                              fixed_text(share, 6));
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(c10::kCUDA));
  if (allocator == nullptr || !allocator->initialized()) return;
  const CudaPlugin& plugin = cuda_plugin();
  void* const found =
      plugin.handle == nullptr ? nullptr : ::dlsym(plugin.handle, "tanren_cuda_limit_1");
  if (found != nullptr) return reinterpret_cast<void (*)(double)>(found)(share);
  log("[device] the CUDA allocator is in use already: memory.limit is planned for but not enforced "
      "(without " +
      std::string(kCudaPlugin) + ")");
}

void probe_accelerators(Machine& machine, const std::string& asked_device,
                        const AcceleratorKind& kind) {
  machine.accelerators.kind = kind.name;
  if (asked_device != "cpu") machine.accelerators = kind.probe();
}

Machine with_world(Machine machine, const World& world, const Environment& environment) {
  machine.rank = world.rank;
  machine.world_size = world.size;
  machine.local_rank = world.local_rank;
  machine.local_ranks = world.local_size;
  machine.launcher = world.launcher == "none" ? "" : world.launcher;
  machine.rendezvous = world.port > 0 ? fmt::format("{}:{}", world.host, world.port) : "";
  // If srun binds tasks to cores, a task sees as many cores as it was asked for.
  const auto per_task = environment("SLURM_CPUS_PER_TASK");
  machine.own_cores = world.launcher == "slurm" && per_task == to_text(machine.cores);
  return machine;
}

void apply_memory_plan(const MemoryPlan& plan) {
  if (!plan.own_allocator) {
    uninstall_cpu_allocator();
    return;
  }
  install_cpu_allocator({.cache = plan.cached_allocator});
  set_cpu_memory_limit(plan.limit_bytes, plan.reserve_bytes);
}

at::Device apply_device_plan(const Plan& plan) {
  auto& context = at::globalContext();
  const at::Device device(plan.device.device);
  MemoryPlan host = plan.memory;
  if (!device.is_cpu()) host.limit_bytes = host.reserve_bytes = 0;  // they are the device's
  apply_memory_plan(host);
  at::set_num_threads(static_cast<int>(plan.device.threads));
  if (plan.device.deterministic) {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicCuDNN(true);
    // torch would fill each new tensor with NaN, for programs that read what they did not write.
    context.setDeterministicFillUninitializedMemory(false);
  }
  context.setBenchmarkCuDNN(plan.precision.cudnn_benchmark);
  context.setFloat32MatmulPrecision(name(plan.precision.matmul));
  // cuDNN has a switch of its own, which torch leaves on.
  context.setAllowTF32CuDNN(plan.precision.matmul != Matmul::highest);
  if (device.is_cpu()) enable_half_convolution();
  return device;
}

}  // namespace tanren
