#include "tanren/base/generators.h"

#include <ATen/Context.h>
#include <ATen/core/Generator.h>

#include <mutex>

namespace tanren {

namespace {
std::vector<std::pair<std::string, at::Generator>> generators(at::Device device) {
  std::vector<std::pair<std::string, at::Generator>> all;
  all.emplace_back("cpu", at::globalContext().defaultGenerator(at::kCPU));
  if (!device.is_cpu()) {
    all.emplace_back(c10::DeviceTypeName(device.type(), /*lower_case=*/true),
                     at::globalContext().defaultGenerator(device));
  }
  return all;
}
}  // namespace

TensorMap generator_states(at::Device device) {
  TensorMap states;
  for (auto& [name, generator] : generators(device)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states.set(name, generator.get_state());
  }
  return states;
}

void set_generator_states(at::Device device, const TensorMap& states) {
  for (auto& [name, generator] : generators(device)) {
    const at::Tensor* state = states.find(name);
    if (state == nullptr) continue;
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(*state);
  }
}

}  // namespace tanren
