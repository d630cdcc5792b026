#include "tanren/train/stage_plan.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tanren {

namespace {

constexpr const char* kElsewhere =
    "[pipeline] this stage reads a weight or buffer that another stage holds: code between blocks "
    "reads it, or the training's forward does not (predict alone), and then the first stage holds "
    "it; read it inside a block (run_block) of both forwards";

// Of the same kind as `tensor`, without memory. Views of it can be made.
at::Tensor without_memory(const at::Tensor& tensor) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<int64_t>(tensor.nbytes()),
                       at::DataPtr(nullptr, tensor.device()), /*allocator=*/nullptr,
                       /*resizable=*/false);
  at::Tensor empty = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), tensor.key_set(),
                                                              tensor.dtype());
  empty.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  empty.storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      kElsewhere);
  return empty;
}

}  // namespace

std::vector<int64_t> StagePlan::holders_of(const std::string& name) const {
  const auto found = holders.find(name);
  if (found != holders.end()) return found->second;
  std::vector<int64_t> all(first_blocks.size());
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

bool StagePlan::holds(const std::string& name) const {
  const auto all = holders_of(name);
  return std::find(all.begin(), all.end(), stage) != all.end();
}

bool StagePlan::owns(const std::string& name) const { return holders_of(name).front() == stage; }

void drop_others(const torch::nn::Module& module, const StagePlan& plan) {
  const auto drop = [&](const std::string& name, const at::Tensor& tensor) {
    if (!plan.holds(name)) tensor.set_data(without_memory(tensor));
  };
  for (const auto& item : module.named_parameters()) drop(item.key(), item.value());
  for (const auto& item : module.named_buffers()) drop(item.key(), item.value());
}

}  // namespace tanren
