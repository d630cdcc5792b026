#include "tanren/dry/forward_work.h"

#include "tanren/base/memory_tag.h"
#include "tanren/dry/multiply_adds.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {
namespace {

// The name, without "aten::", of a matrix product, convolution or attention. Empty for all other
// operators.
std::string_view contraction(const std::string& full) {
  constexpr std::array<std::string_view, 7> kNames = {
      "mm",
      "bmm",
      "addmm",
      "baddbmm",
      "addbmm",
      "convolution",
      "_scaled_dot_product_flash_attention_for_cpu"};
  if (full.rfind("aten::", 0) != 0) return "";
  const std::string_view name = std::string_view(full).substr(6);
  return std::find(kNames.begin(), kNames.end(), name) == kNames.end() ? "" : name;
}

// A view is no work, however large the tensor. A tensor changed in place was counted when it was
// made.
bool shares_memory(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  return !results.empty() && results[0].alias_info() != nullptr;
}

// False for operators that make a tensor from nothing, such as the flat buffer of all gradients.
bool takes_tensors(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
           argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

}  // namespace

void ForwardWork::around(const DryCall& call, c10::function_ref<void()> run) {
  if (!at::GradMode::is_enabled()) return run();
  const std::string_view known = contraction(call.op.operator_name().name);
  std::vector<c10::IValue> arguments;
  if (!known.empty()) arguments = call.arguments().vec();
  run();
  if (takes_tensors(call.op) && !shares_memory(call.op)) {
    for (const auto& value : call.results()) {
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      largest.elements = std::max(largest.elements, value.toTensor().numel());
    }
  }
  if (known.empty()) return;
  const int64_t count =
      tanren::multiply_adds(known, arguments, {call.results().back().toTensor()}).value_or(0);
  if (known.front() != '_') largest.multiply_adds = std::max(largest.multiply_adds, count);
  forward_noted(count);
}

void ForwardWork::forward_noted(int64_t count) { multiply_adds[memory_tag().block] += count; }

}  // namespace tanren
