#include "tanren/base/cuda_plugin.h"

#include <dlfcn.h>

#include <filesystem>

namespace tanren {

const CudaPlugin& cuda_plugin() {
  static const CudaPlugin plugin = [] {
    std::error_code ignored;
    const auto beside =
        std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / kCudaPlugin;
    const bool is_beside = std::filesystem::exists(beside, ignored);
    CudaPlugin found;
    found.handle = ::dlopen(is_beside ? beside.c_str() : kCudaPlugin, RTLD_NOW | RTLD_LOCAL);
    if (found.handle == nullptr) found.missing = ::dlerror();
    return found;
  }();
  return plugin;
}

}  // namespace tanren
