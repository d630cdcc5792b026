// TokenData with some samples whose labels are all ignored. Included by tests only.
#pragma once

#include "tests/support/tiny_run.h"
#include "tests/support/token_data.h"

#include <string>

namespace tanren::testing {

class SparseTokens : public TokenData {
 public:
  // Samples [first, last) have no label that counts.
  SparseTokens(int64_t samples, int64_t first, int64_t last)
      : TokenData(samples), first_(first), last_(last) {}
  Collated collate(const std::vector<int64_t>& indices) const override {
    Collated collated = TokenData::collate(indices);
    const at::Tensor labels = collated.batch["labels"];
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < first_ || indices[i] >= last_) continue;
      const at::Tensor row = labels[static_cast<int64_t>(i)];
      collated.counts["tokens"] -= row.ne(-100).sum().item<double>();
      row.fill_(-100);
    }
    return collated;
  }

 private:
  int64_t first_, last_;
};

// A GPT on unshuffled batches of 12.
inline RunConfig sparse_config(const std::string& mode) {
  auto config = tiny_config("gpt2");
  config.model.num_layers = 1;
  config.model.hidden_size = 16;
  config.model.num_heads = 2;
  config.data.shuffle = false;
  config.batch.global_batch = "12";
  config.precision.mode = mode;
  return config;
}

}  // namespace tanren::testing
