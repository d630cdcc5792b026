#include "tanren/comm/backend.h"

#include "tanren/base/cuda_plugin.h"
#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/c10d_communicator.h"
#include "tanren/comm/connected.h"
#include "tanren/comm/gloo.h"
#include "tanren/comm/nccl_plugin.h"
#include "tanren/comm/rendezvous.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <dlfcn.h>

#include <utility>

namespace tanren {

namespace {

struct NcclPlugin {
  NcclBackend* backend = nullptr;
  std::string missing;  // why it is null
};

NcclPlugin load_nccl_plugin() {
  const CudaPlugin& plugin = cuda_plugin();
  if (plugin.handle == nullptr) return {nullptr, plugin.missing};
  void* found = ::dlsym(plugin.handle, kNcclBackend);
  if (found == nullptr) return {nullptr, fmt::format("it is of another version: {}", ::dlerror())};
  return {reinterpret_cast<NcclBackend*>(found), ""};
}

const NcclPlugin& nccl_plugin() {
  static const NcclPlugin plugin = load_nccl_plugin();
  return plugin;
}

std::unique_ptr<Communicator> nccl_communicator(const World& world, const CommOptions& options) {
  if (!options.device.is_cuda()) {
    throw CommError(
        fmt::format("[comm] backend nccl: the tensors are on {}, and NCCL carries those of CUDA "
                    "alone; take run.device = \"cuda\" or backend gloo",
                    options.device.str()));
  }
  if (const std::string why = why_no_nccl(); !why.empty()) {
    throw CommError(fmt::format("[comm] backend nccl: {}", why));
  }
  Rendezvous rendezvous = join_rendezvous(world, options.timeout);
  const auto connect = [store = rendezvous.store, rank_in_world = world.rank,
                        device = options.device, timeout = options.timeout](
                           const std::string& prefix, const C10dPart& part) {
    const NcclRequest request{c10::make_intrusive<c10d::PrefixStore>(prefix, store), part.rank,
                              part.size, device.has_index() ? device.index() : 0, timeout};
    return connected(*part.control, fmt::format("[comm] rank {}, backend nccl", rank_in_world),
                     [request] { return nccl_plugin().backend(request); });
  };
  auto backend = connect("nccl", {world.rank, world.size, "", rendezvous.control.get()});
  C10dOptions as_nccl{.name = "nccl",
                      .in_place = true,
                      .device = options.device,
                      .timeout = options.timeout,
                      .in_groups = true};
  as_nccl.split = [connect](const C10dPart& part) {
    return C10dBackend{connect("nccl-" + part.name, part)};
  };
  return c10d_communicator(std::move(backend), std::move(as_nccl), std::move(rendezvous.control));
}

}  // namespace

std::string why_no_nccl() {
  const std::string& missing = nccl_plugin().missing;
  if (missing.empty()) return "";
  return fmt::format(
      "the plugin {} cannot be loaded, neither beside the program nor from the library path ({}); "
      "build it with -DTANREN_CUDA=ON where nccl.h is, or take backend gloo",
      kCudaPlugin, missing);
}

CommChoice choose_backend(const World& world, const CommOptions& options) {
  if (options.backend != "auto" && options.backend != "gloo" && options.backend != "nccl") {
    throw ConfigError(fmt::format("[comm] backend \"{}\" is not known; take auto, gloo or nccl",
                                  options.backend));
  }
  if (world.size == 1) return {"single", "there is one rank"};
  if (options.backend != "auto") return {options.backend, "the config says so"};
  if (!options.device.is_cuda()) return {"gloo", "the tensors are on the CPU"};
  if (const std::string why = why_no_nccl(); !why.empty()) return {"gloo", why};
  return {"nccl", "the tensors are on CUDA devices"};
}

std::unique_ptr<Communicator> make_communicator(World world, const CommOptions& options) {
  set_rendezvous(world, options.rendezvous);
  const CommChoice choice = choose_backend(world, options);
  if (choice.backend == "single") return single_communicator();
  if (choice.backend == "nccl") return nccl_communicator(world, options);
  return gloo_communicator(world, options.timeout);
}

}  // namespace tanren
