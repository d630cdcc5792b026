#include "tanren/model/couples_samples.h"

namespace tanren {

bool couples_samples(const torch::nn::Module& module) {
  // The given module itself may not be owned by a shared_ptr, which modules() would demand.
  if (module.name().find("BatchNorm") != std::string::npos) return true;
  for (const auto& child : module.children()) {
    if (couples_samples(*child)) return true;
  }
  return false;
}

}  // namespace tanren
