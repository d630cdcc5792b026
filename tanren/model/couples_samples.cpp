#include "tanren/model/couples_samples.h"

#include "tanren/model/gpt2.h"

namespace tanren {

bool couples_samples(const Task& task) {
  return task.facts.couples_samples.value_or(couples_samples(*task.module));
}

std::string torch_dropout(const Task& task) {
  return task.facts.torch_dropout.value_or(torch_dropout(*task.module));
}

bool couples_samples(const torch::nn::Module& module) {
  // Not module.modules(): it requires that a shared_ptr owns the given module.
  if (module.name().find("BatchNorm") != std::string::npos) return true;
  for (const auto& child : module.children()) {
    if (couples_samples(*child)) return true;
  }
  return false;
}

std::string torch_dropout(const torch::nn::Module& module) {
  const auto* gpt2 = dynamic_cast<const Gpt2*>(&module);
  if (gpt2 != nullptr && gpt2->shape().fused_attention_dropout &&
      gpt2->shape().attention_dropout > 0) {
    return "the fused attention";
  }
  for (const auto& child : module.named_children()) {
    const std::string type = child.value()->name();
    const bool drops =
        type.find("torch::nn::") != std::string::npos && type.find("Dropout") != std::string::npos;
    if (drops) return child.key();
    const std::string inside = torch_dropout(*child.value());
    if (!inside.empty()) return child.key() + "." + inside;
  }
  return "";
}

}  // namespace tanren
