#include "tanren/train/model_dtype.h"

#include "tanren/dry/dry_scope.h"
#include "tanren/model/layers.h"
#include "tanren/precision/autocast_scope.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>

namespace tanren {

namespace {

bool is_batch_norm(const torch::nn::Module& module) {
  return dynamic_cast<const torch::nn::BatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const torch::nn::BatchNorm3dImpl*>(&module) != nullptr ||
         dynamic_cast<const BatchNorm2d*>(&module) != nullptr ||
         module.name().find("nn.modules.batchnorm.") != std::string::npos;  // of TorchScript
}

// Calls work(name, tensor) for every parameter and buffer.
template <typename F>
void for_each_tensor(const torch::nn::Module& module, const F& work) {
  for (const auto& item : module.named_parameters()) work(item.key(), item.value());
  for (const auto& item : module.named_buffers()) work(item.key(), item.value());
}

}  // namespace

std::set<std::string> batch_norm_tensors(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& item : module.named_modules("", /*include_self=*/true)) {
    const torch::nn::Module& own = *item.value();
    if (!is_batch_norm(own) || !own.named_parameters(/*recurse=*/false).contains("weight"))
      continue;
    const std::string start = item.key().empty() ? "" : item.key() + ".";
    for (const auto& tensor : own.named_parameters(/*recurse=*/false)) {
      names.insert(start + tensor.key());
    }
    for (const auto& tensor : own.named_buffers(/*recurse=*/false)) {
      names.insert(start + tensor.key());
    }
  }
  return names;
}

// Module::to with a dtype would convert counters (num_batches_tracked) to floating numbers too. In
// a dry run a tensor that torch made from a value is real. set_data cannot replace it by a dry
// tensor, so it keeps its dtype.
void move_module(torch::nn::Module& module, c10::Device device, const PrecisionPlan& plan) {
  module.to(device);
  const at::ScalarType dtype = parameter_dtype(plan);
  const auto spared =
      plan.keep_batchnorm_fp32 ? batch_norm_tensors(module) : std::set<std::string>();
  for_each_tensor(module, [&](const std::string& name, at::Tensor tensor) {
    const at::ScalarType own = spared.count(name) > 0 ? at::kFloat : dtype;
    if (!tensor.is_floating_point() || tensor.scalar_type() == own) return;
    const at::Tensor converted = tensor.detach().to(own);
    if (is_dry(converted) == is_dry(tensor)) tensor.set_data(converted);
  });
}

OddDtypes odd_dtypes(const torch::nn::Module& module) {
  OddDtypes odd;
  for_each_tensor(module, [&](const std::string& name, const at::Tensor& tensor) {
    const at::ScalarType dtype = tensor.scalar_type();
    if (tensor.is_floating_point() && dtype != at::kFloat) odd.emplace_back(name, dtype);
  });
  return odd;
}

std::optional<PlanLine> dtype_line(const OddDtypes& odd, const Plan& plan) {
  const at::ScalarType dtype = parameter_dtype(plan.precision);
  int64_t count = 0;
  std::string first;
  for (const auto& [name, own] : odd) {
    if (own != dtype && count++ == 0) first = name + " is " + c10::toString(own);
  }
  if (count == 0) return std::nullopt;
  const bool is_wide = dtype == at::kDouble;
  return PlanLine{"weights", name(is_wide ? Mode::fp64 : plan.precision.cast_model_type),
                  Source::planned,
                  fmt::format("{}{} of the model come in another dtype ({}) and are converted{}",
                              count, count == 1 ? " tensor" : " tensors", first,
                              is_wide || !plan.precision.level.empty()
                                  ? ""
                                  : "; precision.mode = \"fp64\" keeps what is Double")};
}

}  // namespace tanren
