#include "tanren/plan/passes.h"

namespace tanren {

void plan_memory(const Request& request, Plan& plan) {
  const std::string& asked = request.config.memory.allocator;
  const bool automatic = asked == "auto";
  const bool wanted = automatic ? plan.device.device == "cpu" : asked == "cached";
  const bool sanitized = wanted && request.machine.address_sanitizer;
  plan.memory.cached_allocator = wanted && !sanitized;
  std::string reason =
      "large CPU tensors reuse the pages of the step before, huge ones if there are";
  if (sanitized) {
    reason = "a cache would hide a use after free from the address sanitizer";
  } else if (!wanted) {
    reason = automatic ? "the device's own allocator caches, and CPU tensors are few"
                       : "torch's own for CPU tensors";
  }
  plan.lines.push_back(
      {"allocator", plan.memory.cached_allocator ? "cached" : "default",
       automatic || sanitized ? Source::planned : request.source("memory.allocator"), reason});
}

}  // namespace tanren
