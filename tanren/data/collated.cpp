#include "tanren/data/collated.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/text.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>

namespace tanren {

namespace {

// "samples 3, 17, 4, … (32 of them)", by their numbers in the source.
std::string samples_text(const Dataset& dataset, const std::vector<int64_t>& indices) {
  constexpr size_t kShown = 4;
  std::string text = "samples ";
  for (size_t i = 0; i < indices.size() && i < kShown; ++i) {
    const bool is_there = indices[i] >= 0 && indices[i] < dataset.size();
    text += (i > 0 ? ", " : "") + to_text(is_there ? dataset.source_row(indices[i]) : indices[i]);
  }
  if (indices.size() > kShown) text += fmt::format(", … ({} of them)", indices.size());
  return text;
}

[[noreturn]] void refuse_batch(const Dataset& dataset, const std::vector<int64_t>& indices,
                               const std::string& what, const std::string& advice) {
  throw DataError(fmt::format("[data] collate of {} gave {}; {}", samples_text(dataset, indices),
                              what, advice));
}

void check_ids(const Dataset& dataset, const at::Tensor& ids, const std::vector<int64_t>& indices) {
  const auto refuse = [&](const std::string& what, const char* advice) {
    refuse_batch(dataset, indices, what, advice);
  };
  constexpr const char* kAdvice = "set batch.ids to the index of each sample, int64 [n] on the CPU";
  if (!ids.defined()) refuse("a batch without ids", kAdvice);
  if (ids.dim() != 1 || ids.scalar_type() != at::kLong || !ids.is_cpu()) {
    refuse(fmt::format("ids that are {} of {} dimensions on {}", c10::toString(ids.scalar_type()),
                       ids.dim(), ids.device().str()),
           kAdvice);
  }
  if (ids.numel() > static_cast<int64_t>(indices.size())) {
    refuse(fmt::format("{} ids", ids.numel()), "give one for each sample");
  }
  const at::Tensor row = ids.contiguous();
  const auto* id = row.const_data_ptr<int64_t>();
  const int64_t size = dataset.size();
  for (int64_t i = 0; i < row.numel(); ++i) {
    if (id[i] >= 0 && id[i] < size) continue;
    refuse(fmt::format("the id {} and there are {}", id[i], size), kAdvice);
  }
}

void check_batch(const Dataset& dataset, const Batch& batch, const std::vector<int64_t>& indices) {
  check_ids(dataset, batch.ids, indices);
  const auto refuse = [&](const std::string& what, const char* advice) {
    refuse_batch(dataset, indices, what, advice);
  };
  for (const auto& [name, field] : batch.fields) {
    if (!field.defined()) refuse("no tensor as " + name, "give it one, or leave it out");
    if (field.dim() > 0 && field.size(0) == batch.size()) continue;
    refuse(fmt::format("{} as {} beside {} ids",
                       field.dim() == 0 ? "a scalar" : fmt::format("{} rows", field.size(0)), name,
                       batch.size()),
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
    std::throw_with_nested(DataError("[data] collate of " + samples_text(dataset, indices) +
                                     " failed: " + line_of_current() + "; fix the dataset"));
  }
  check_batch(dataset, made.batch, indices);
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
