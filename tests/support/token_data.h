// Token sequences for the whole-run tests, a pure function of the index: each token follows from
// the two before it, or is random. Labels beyond a sample's own length are -100, so counts differ.
#pragma once

#include "tanren/base/random.h"
#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

namespace tanren::testing {

class TokenData : public Dataset {
 public:
  explicit TokenData(int64_t samples = 37, int64_t length = 12, int64_t vocab = 23)
      : samples_(samples), length_(length), vocab_(vocab) {}
  int64_t size() const override { return samples_; }
  DataInfo info() const override {
    return {
        .input_shape = {length_}, .outputs = vocab_, .class_labels = true, .vocab_size = vocab_};
  }
  Collated collate(const std::vector<int64_t>& indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    at::Tensor inputs = at::empty({count, length_}, at::kLong);
    at::Tensor labels = at::full({count, length_}, -100, at::kLong);
    double tokens = 0;
    for (int64_t i = 0; i < count; ++i) {
      auto* in = inputs.mutable_data_ptr<int64_t>() + i * length_;
      auto* out = labels.mutable_data_ptr<int64_t>() + i * length_;
      const int64_t known = 1 + indices[i] * 5 % length_;
      int64_t token = token_at(indices[i], 0, 1, 2);
      int64_t before = 1;
      for (int64_t t = 0; t < length_; ++t) {
        in[t] = token;
        const int64_t next = token_at(indices[i], t + 1, before, token);
        before = token;
        token = next;
        if (t < known) out[t] = next;
      }
      tokens += static_cast<double>(known);
    }
    Collated collated;
    collated.batch.ids = at::tensor(indices, at::kLong);
    collated.batch.fields.set("inputs", inputs);
    collated.batch.fields.set("labels", labels);
    collated.counts = {{"samples", static_cast<double>(count)}, {"tokens", tokens}};
    return collated;
  }

 private:
  int64_t token_at(int64_t index, int64_t position, int64_t before, int64_t last) const {
    const uint64_t bits = random_bits(3, static_cast<uint64_t>(index), position);
    if (bits % 4 != 0) return (before + 3 * last + 1) % vocab_;
    return static_cast<int64_t>((bits >> 8) % static_cast<uint64_t>(vocab_));
  }

  int64_t samples_, length_, vocab_;
};

}  // namespace tanren::testing
