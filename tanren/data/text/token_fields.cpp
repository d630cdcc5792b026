#include "tanren/data/text/token_fields.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {

namespace {

constexpr int64_t kNoLabel = -100;

bool is_whole(const at::Tensor& x) {
  return at::isIntegralType(x.scalar_type(), /*includeBool=*/false);
}

// Converts a field of whole numbers to int64; returns one more than the largest. DataError for a
// negative number.
int64_t count_of(TensorMap& fields, const std::string& name, const std::string& where) {
  const at::Tensor ids = fields.at(name).to(at::kLong);
  if (ids.numel() == 0) return 0;
  if (const auto low = ids.min().item<int64_t>(); low < 0) {
    throw DataError(
        fmt::format("{}: tensor {} holds {}; tokens are numbers from 0 on", where, name, low));
  }
  fields.set(name, ids);
  return ids.max().item<int64_t>() + 1;
}

}  // namespace

bool describe_tokens(TensorMap& fields, DataInfo& info, const std::string& where) {
  const at::Tensor* found = fields.find("inputs");
  if (found == nullptr || found->dim() != 2 || !is_whole(*found)) return false;
  const std::vector<int64_t> sizes = found->sizes().vec();
  info.vocab_size = count_of(fields, "inputs", where);
  for (const char* name : {"token_types", "attention_mask"}) {
    const at::Tensor* field = fields.find(name);
    if (field != nullptr && field->sizes() != at::IntArrayRef(sizes)) {
      throw DataError(where + ": tensor " + name +
                      " has not the shape of inputs; give it a number for each token");
    }
  }
  if (const auto* types = fields.find("token_types"); types != nullptr && is_whole(*types)) {
    info.token_types = count_of(fields, "token_types", where);
  }
  const at::Tensor* labels = fields.find("labels");
  if (labels == nullptr || !is_whole(*labels) || labels->sizes() != at::IntArrayRef(sizes)) {
    return false;
  }
  const at::Tensor targets = labels->to(at::kLong);
  if (targets.numel() > 0) {
    if ((targets < 0).logical_and(targets != kNoLabel).any().item<bool>()) {
      throw DataError(where +
                      ": tensor labels holds negative numbers other than -100 (no label); "
                      "fix them");
    }
    info.vocab_size = std::max(info.vocab_size, targets.max().item<int64_t>() + 1);
  }
  fields.set("labels", targets);
  info.outputs = info.vocab_size;
  return true;
}

void count_tokens(const DataInfo& info, Collated& collated) {
  const at::Tensor* labels = collated.batch.fields.find("labels");
  if (info.vocab_size == 0 || labels == nullptr || labels->dim() != 2) return;
  if (labels->scalar_type() != at::kLong) return;
  // A plain loop: loader threads must not open OpenMP teams.
  const auto* from = labels->const_data_ptr<int64_t>();
  const auto none = std::count(from, from + labels->numel(), kNoLabel);
  collated.counts["tokens"] = static_cast<double>(labels->numel() - none);
}

}  // namespace tanren
