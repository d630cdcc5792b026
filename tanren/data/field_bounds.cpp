#include "tanren/data/field_bounds.h"

#include "tanren/base/text.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {

namespace {

constexpr int64_t kMissingLabel = -100;

bool holds_whole_numbers(const at::Tensor& field) {
  return at::isIntegralType(field.scalar_type(), /*includeBool=*/false) && field.dim() > 0 &&
         field.numel() > 0;
}

std::optional<BadValue> first_bad(const std::string& name, const at::Tensor& field, int64_t bound,
                                  const at::Tensor& ids) {
  const at::Tensor numbers = field.to(at::kLong).contiguous();
  const auto* values = numbers.const_data_ptr<int64_t>();
  const bool may_lack = name == "labels";
  const auto* bad = std::find_if(values, values + numbers.numel(), [&](int64_t value) {
    return (value < 0 || value >= bound) && !(may_lack && value == kMissingLabel);
  });
  const int64_t index = bad - values;
  if (index == numbers.numel()) return std::nullopt;
  const int64_t width = numbers.numel() / numbers.size(0);
  BadValue found;
  found.field = name;
  found.row = index / width;
  found.sample = ids.defined() ? ids[found.row].item<int64_t>() : found.row;
  found.position = numbers.dim() > 1 ? index % width : -1;
  found.value = *bad;
  found.bound = bound;
  return found;
}

}  // namespace

FieldBounds field_bounds(const DataInfo& info, int64_t classes) {
  FieldBounds bounds;
  // A language model's classes are its vocabulary, which may be larger than the data's.
  if (info.vocab_size > 0) bounds["inputs"] = std::max(info.vocab_size, classes);
  if (info.token_types > 0) bounds["token_types"] = info.token_types;
  const int64_t labels = classes > 0 ? classes : info.outputs;
  if (info.class_labels && labels > 0) bounds["labels"] = labels;
  return bounds;
}

std::string BadValue::text() const {
  return fmt::format("{} holds {} in sample {}{} (row {} of the batch), outside [0, {})", field,
                     to_text(value), to_text(sample),
                     position >= 0 ? fmt::format(" at position {}", to_text(position)) : "",
                     to_text(row), to_text(bound));
}

std::optional<BadValue> find_bad_value(const Batch& host, const FieldBounds& bounds) {
  for (const auto& [name, bound] : bounds) {
    const at::Tensor* field = host.fields.find(name);
    if (field == nullptr || !holds_whole_numbers(*field)) continue;
    if (auto found = first_bad(name, *field, bound, host.ids)) return found;
  }
  return std::nullopt;
}

std::string ranges_text(const Batch& host) {
  std::string text;
  for (const auto& [name, field] : host.fields) {
    if (!holds_whole_numbers(field)) continue;
    text += fmt::format("{}{} {} to {}", text.empty() ? "" : ", ", name,
                        to_text(field.min().item().toLong()), to_text(field.max().item().toLong()));
  }
  return text;
}

}  // namespace tanren
