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

// The name, without "aten::", of a matrix product, convolution, attention or recurrent layer. Empty
// for all other operators.
std::string_view contraction(const std::string& full) {
  constexpr std::array<std::string_view, 8> kNames = {
      "mm",
      "bmm",
      "addmm",
      "baddbmm",
      "addbmm",
      "convolution",
      "mkldnn_rnn_layer",
      "_scaled_dot_product_flash_attention_for_cpu"};
  if (full.rfind("aten::", 0) != 0) return "";
  const std::string_view name = std::string_view(full).substr(6);
  return std::find(kNames.begin(), kNames.end(), name) == kNames.end() ? "" : name;
}

// Attention and recurrent layers are many products.
bool is_one_product(std::string_view contraction) {
  return contraction.front() != '_' && contraction != "mkldnn_rnn_layer";
}

// Matrices among the arguments that need a gradient, two at most: the other arguments, such as a
// bias, are added.
int64_t factors_with_gradient(const std::vector<c10::IValue>& arguments) {
  return std::min<int64_t>(2, std::count_if(arguments.begin(), arguments.end(), [](const auto& a) {
                             return a.isTensor() && a.toTensor().defined() &&
                                    a.toTensor().dim() >= 2 && a.toTensor().requires_grad();
                           }));
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
  const int64_t counted = num_counted_;
  std::vector<c10::IValue> arguments;
  if (!known.empty()) arguments = call.arguments().vec();
  run();
  if (takes_tensors(call.op) && !shares_memory(call.op)) {
    for (const auto& value : call.results()) {
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      largest.elements = std::max(largest.elements, value.toTensor().numel());
    }
  }
  // Autocast has called the same operator again, with casts, and that call has been counted.
  if (known.empty() || num_counted_ > counted) return;
  const int64_t forward =
      tanren::multiply_adds(known, arguments, {call.results().back().toTensor()}).value_or(0);
  if (is_one_product(known)) largest.multiply_adds = std::max(largest.multiply_adds, forward);
  count(forward, factors_with_gradient(arguments));
}

void ForwardWork::forward_noted(int64_t forward, int64_t gradients) { count(forward, gradients); }

void ForwardWork::count(int64_t forward, int64_t factors) {
  ++num_counted_;
  multiply_adds[memory_tag().block] += forward;
  backward_multiply_adds += factors * forward;
}

}  // namespace tanren
