#include "tanren/data/dataset.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/data/split.h"
#include "tanren/data/text/token_fields.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

namespace tanren {

SplitKeys Dataset::split_keys() const {
  SplitKeys keys;
  for (int64_t i = 0; i < size(); ++i) keys.hashes.push_back(split_hash(i));
  return keys;
}

TensorDataset::TensorDataset(TensorMap fields, DataInfo info, const std::string& what,
                             std::vector<uint64_t> hashes)
    : info_(std::move(info)), hashes_(std::move(hashes)) {
  for (const auto& [name, tensor] : fields) {
    if (tensor.dim() == 0) {
      throw DataError("[" + what + "] tensor " + name + " is a scalar; dim 0 must count samples");
    }
    if (fields_.empty()) size_ = tensor.size(0);
    if (tensor.size(0) != size_) {
      throw DataError(
          fmt::format("[{}] tensor {} has {}, the ones before it {}; dim 0 must be the same in all",
                      what, name, counted(tensor.size(0), "sample"), size_));
    }
    fields_.set(name, tensor.contiguous());
  }
  if (size_ == 0) throw DataError("[" + what + "] holds no samples; give it some");
}

Collated TensorDataset::collate(const std::vector<int64_t>& indices) const {
  const auto count = static_cast<int64_t>(indices.size());
  check_indices(indices, size_);
  Collated collated;
  for (const auto& [name, field] : fields_) {
    c10::SmallVector<int64_t, 8> sizes(field.sizes().begin(), field.sizes().end());
    sizes[0] = count;
    at::Tensor rows = at::empty(sizes, field.options());
    const auto bytes = static_cast<size_t>(field.nbytes()) / static_cast<size_t>(size_);
    auto* target = bytes > 0 ? static_cast<char*>(rows.mutable_data_ptr()) : nullptr;
    const auto* source = static_cast<const char*>(field.const_data_ptr());
    for (size_t i = 0; i < indices.size() && bytes > 0; ++i) {
      std::memcpy(target, source + static_cast<size_t>(indices[i]) * bytes, bytes);
      target += bytes;
    }
    collated.batch.fields.set(name, std::move(rows));
  }
  collated.batch.ids = ids_of(indices);
  collated.counts["samples"] = static_cast<double>(count);
  count_tokens(info_, collated);
  return collated;
}

const at::Tensor* TensorDataset::class_labels() const {
  const at::Tensor* labels = fields_.find("labels");
  const bool is_one_class = info_.class_labels && labels != nullptr && labels->dim() == 1 &&
                            labels->scalar_type() == at::kLong;
  return is_one_class ? labels : nullptr;
}

std::vector<int64_t> TensorDataset::class_counts() const {
  const at::Tensor* labels = class_labels();
  return labels != nullptr ? counts_of_classes(*labels, info_.outputs) : std::vector<int64_t>();
}

SplitKeys TensorDataset::split_keys() const {
  SplitKeys keys = hashes_.empty() ? Dataset::split_keys() : SplitKeys{hashes_, {}};
  if (const at::Tensor* labels = class_labels()) keys.classes = numbers_of(*labels);
  return keys;
}

std::vector<DataPart> TensorDataset::parts() const {
  std::vector<std::string> names;
  for (const auto& [name, field] : fields_) names.push_back(name);
  std::vector<DataPart> parts{part_of("field names", names)};
  for (const auto& [name, field] : fields_) parts.push_back(part_of(name, field));
  return parts;
}

void check_indices(const std::vector<int64_t>& indices, int64_t size) {
  for (const int64_t index : indices) {
    if (index >= 0 && index < size) continue;
    throw DataError(
        fmt::format("[data] there is no sample {}; there are {}, counted from 0", index, size));
  }
}

at::Tensor ids_of(const std::vector<int64_t>& indices) {
  at::Tensor ids = at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  std::copy(indices.begin(), indices.end(), ids.mutable_data_ptr<int64_t>());
  return ids;
}

std::vector<int64_t> numbers_of(const at::Tensor& row) {
  const auto* from = row.const_data_ptr<int64_t>();
  return {from, from + row.numel()};
}

std::vector<int64_t> counts_of_classes(const at::Tensor& labels, int64_t classes) {
  std::vector<int64_t> counts(static_cast<size_t>(std::max<int64_t>(classes, 0)));
  const auto* label = labels.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] >= 0 && label[i] < classes) ++counts[static_cast<size_t>(label[i])];
  }
  return counts;
}

}  // namespace tanren
