#include "tanren/data/collated.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>

namespace tanren {

namespace {

// "samples 3, 17, 4, … (32 of them)"
std::string samples_text(const std::vector<int64_t>& indices) {
  constexpr size_t kShown = 4;
  std::string text = "samples ";
  for (size_t i = 0; i < indices.size() && i < kShown; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(indices[i]);
  }
  if (indices.size() > kShown) text += ", … (" + std::to_string(indices.size()) + " of them)";
  return text;
}

[[noreturn]] void refuse(const std::vector<int64_t>& indices, const std::string& what,
                         const std::string& advice) {
  throw DataError("[data] collate of " + samples_text(indices) + " gave " + what + "; " + advice);
}

void check_ids(const at::Tensor& ids, const std::vector<int64_t>& indices, int64_t size) {
  constexpr const char* kAdvice = "set batch.ids to the index of each sample, int64 [n] on the CPU";
  if (!ids.defined()) refuse(indices, "a batch without ids", kAdvice);
  if (ids.dim() != 1 || ids.scalar_type() != at::kLong || !ids.is_cpu()) {
    refuse(indices,
           std::string("ids that are ") + c10::toString(ids.scalar_type()) + " of " +
               std::to_string(ids.dim()) + " dimensions on " + ids.device().str(),
           kAdvice);
  }
  if (ids.numel() > static_cast<int64_t>(indices.size())) {
    refuse(indices, std::to_string(ids.numel()) + " ids", "give one for each sample");
  }
  const at::Tensor row = ids.contiguous();
  const auto* id = row.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < row.numel(); ++i) {
    if (id[i] >= 0 && id[i] < size) continue;
    refuse(indices, "the id " + std::to_string(id[i]) + " and there are " + std::to_string(size),
           kAdvice);
  }
}

void check_batch(const Batch& batch, const std::vector<int64_t>& indices, int64_t size) {
  check_ids(batch.ids, indices, size);
  for (const auto& [name, field] : batch.fields) {
    if (!field.defined()) refuse(indices, "no tensor as " + name, "give it one, or leave it out");
    if (field.dim() > 0 && field.size(0) == batch.size()) continue;
    refuse(indices,
           (field.dim() == 0 ? "a scalar" : std::to_string(field.size(0)) + " rows") + " as " +
               name + " beside " + std::to_string(batch.size()) + " ids",
           "give one row for each sample, along dim 0");
  }
}

template <typename Work>
Collated looked_at(const Dataset& dataset, const std::vector<int64_t>& indices, const Work& work) {
  Collated made;
  try {
    made = work();
  } catch (...) {
    rethrow_known();
    std::throw_with_nested(DataError("[data] collate of " + samples_text(indices) +
                                     " failed: " + line_of_current() + "; mend the dataset"));
  }
  check_batch(made.batch, indices, dataset.size());
  made.counts.try_emplace("samples", static_cast<double>(made.batch.size()));
  return made;
}

}  // namespace

Collated collated(const Dataset& dataset, const std::vector<int64_t>& indices) {
  return looked_at(dataset, indices, [&] { return dataset.collate(indices); });
}

Collated collated_for_training(const Dataset& dataset, const std::vector<int64_t>& indices,
                               const Draw& draw) {
  return looked_at(dataset, indices, [&] { return dataset.collate_training(indices, draw); });
}

}  // namespace tanren
