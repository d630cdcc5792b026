#include "tanren/interop/described_task.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/check_tensors.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/init.h"
#include "tanren/train/build.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace tanren {

namespace {

class DescribedDataset : public Dataset {
 public:
  DescribedDataset(DataInfo info, int64_t size) : info_(std::move(info)), size_(size) {}
  int64_t size() const override { return size_; }
  DataInfo info() const override { return info_; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    throw Error(
        fmt::format("[data] the training data are not here (asked for {} samples); a whole model "
                    "only evaluates",
                    indices.size()));
  }

 private:
  DataInfo info_;
  int64_t size_;
};

// Weights in files are fp32, or fp64 from a run in fp64. Other floating tensors of a module take
// the file's dtype.
bool takes_dtype(const at::Tensor& own, const at::Tensor& theirs) {
  const bool is_wide = theirs.scalar_type() == at::kFloat || theirs.scalar_type() == at::kDouble;
  return is_wide && own.is_floating_point() && own.scalar_type() != theirs.scalar_type();
}

void check_file(TensorMap built, const TensorMap& tensors, const std::string& what) {
  const TensorMap own = built;
  for (const auto& [name, tensor] : own) {
    const at::Tensor* const theirs = tensors.find(name);
    if (theirs == nullptr || !takes_dtype(tensor, *theirs)) continue;
    built.set(name, at::empty(tensor.sizes(), theirs->options().device(at::kMeta)));
  }
  check_names_and_shapes(built, tensors, what, "export the model again");
}

}  // namespace

void check_described(const ModelDescription& description, const TensorMap& tensors,
                     const std::string& what, const ModelRegistry& models) {
  const ModelOptions& options = description.config.model;
  const auto own = ModelRegistry().kinds();
  if (std::find(own.begin(), own.end(), options.kind) == own.end()) return;
  // Each layer costs a few objects even if its weights take no memory.
  if (options.num_layers > static_cast<int64_t>(tensors.size())) {
    refuse_description(what, fmt::format("asks for {} layers, there are {} tensors",
                                         options.num_layers, tensors.size()));
  }
  const int64_t blocks = options.num_blocks + options.enhancer_blocks;
  if (options.kind == "pix2pixhd" && blocks > static_cast<int64_t>(tensors.size())) {
    refuse_description(
        what, fmt::format("asks for {} blocks, there are {} tensors", blocks, tensors.size()));
  }
  const DryScope without_memory;
  TensorMap shapes;
  try {
    shapes = tensors_of(*models.make(options, description.info).module);
  } catch (const c10::Error&) {
    refuse_description(what, "asks for impossible sizes");
  }
  check_file(shapes, tensors, what);
}

Task build_described(const ModelOptions& options, const DataInfo& info, const TensorMap& tensors,
                     const std::string& what, const ModelRegistry& models) {
  const MemoryScope memory(MemoryKind::weights);
  Task task;
  {
    std::optional<NoInitScope> no_init;
    if (models.is_of_the_zoo(options.kind)) no_init.emplace();
    task = models.make(options, info);
  }
  const TensorMap mine = tensors_of(*task.module);
  check_file(mine, tensors, what);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : mine) {
    const at::Tensor& theirs = tensors.at(name);
    at::Tensor own = tensor;
    if (takes_dtype(own, theirs)) own.set_data(at::empty_like(own, theirs.scalar_type()));
    own.copy_(theirs);
  }
  return task;
}

std::unique_ptr<Dataset> described_dataset(DataInfo info, int64_t size) {
  return std::make_unique<DescribedDataset>(std::move(info), size);
}

}  // namespace tanren
