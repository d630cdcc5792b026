// The linear layers of BERT-base alone: with 8-bit weights, rows quantised included, beside
// at::linear in fp32 and bf16.
#pragma once

#include "tanren/ops/quantized_linear.h"
#include "benchmarks/evaluated.h"
#include "benchmarks/int8_goal.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace tanren::bench {

// One layer for each of 12 blocks, called in turn. So the weights are as rarely in the cache as in
// a model.
class LinearLayers {
 public:
  LinearLayers(int64_t out, int64_t in, int64_t rows) {
    constexpr int kBlocks = 12;
    rows_ = at::randn({rows, in});
    narrow_rows_ = rows_.to(at::kBFloat16);
    bias_ = at::randn({out});
    narrow_bias_ = bias_.to(at::kBFloat16);
    for (int i = 0; i < kBlocks; ++i) {
      weights_.push_back(at::randn({out, in}) * 0.02);
      narrow_weights_.push_back(weights_.back().to(at::kBFloat16));
      packed_.push_back(pack_weight(quantize_weight(weights_.back(), "weight")));
    }
  }

  at::Tensor plain(at::ScalarType dtype, size_t block) const {
    return dtype == at::kFloat ? at::linear(rows_, weights_[block], bias_)
                               : at::linear(narrow_rows_, narrow_weights_[block], narrow_bias_);
  }
  at::Tensor int8(at::ScalarType dtype, const std::optional<InputScale>& input,
                  size_t block) const {
    return quantized_linear(dtype == at::kFloat ? rows_ : narrow_rows_, packed_[block], bias_,
                            input, dtype);
  }
  size_t blocks() const { return weights_.size(); }

 private:
  at::Tensor rows_, narrow_rows_, bias_, narrow_bias_;
  std::vector<at::Tensor> weights_, narrow_weights_;
  std::vector<PackedWeight> packed_;
};

// Seconds of `call(block)` for every block, repeated until it takes long enough to be timed.
template <class F>
std::function<double()> timed_blocks(const LinearLayers& layers, const F& call) {
  const auto pass = [&layers, call] {
    for (size_t block = 0; block < layers.blocks(); ++block) (void)call(block);
  };
  pass();
  constexpr double kLongEnough = 0.03;
  const double once = seconds(pass);
  const int repeats = std::clamp(static_cast<int>(kLongEnough / once), 1, 1000);
  return [pass, repeats] {
    return seconds([&] {
             for (int i = 0; i < repeats; ++i) pass();
           }) /
           repeats;
  };
}

// Median ratios of one kind of layer.
struct LinearRatios {
  double dynamic = 0, is_static = 0;
};

inline LinearRatios measure_layers(const Int8Asked& asked, const LinearLayers& layers,
                                   at::ScalarType dtype, const std::string& shape) {
  constexpr InputScale kFourDeviations{8.0F / 255, 128};
  const std::string name = dtype == at::kFloat ? "fp32" : "bf16";
  const auto plain = timed_blocks(layers, [&](size_t block) { return layers.plain(dtype, block); });
  print(shape + " " + name + " / itself", pair_up(asked.pairs, plain, plain), 1e3, "ms");
  LinearRatios ratios;
  for (const bool is_static : {false, true}) {
    const auto input = is_static ? std::optional<InputScale>(kFourDeviations) : std::nullopt;
    const auto int8 =
        timed_blocks(layers, [&](size_t block) { return layers.int8(dtype, input, block); });
    const std::string scheme = is_static ? "static" : "dynamic";
    const Paired paired = pair_up(asked.pairs, int8, plain);
    print(shape + " " + scheme + " / " + name, paired, 1e3, "ms");
    (is_static ? ratios.is_static : ratios.dynamic) = paired.ratio.median;
    asked.checks->near(shape + " " + scheme + " from fp32",
                       distance(layers.int8(dtype, input, 0), layers.plain(at::kFloat, 0)), 0.03);
  }
  return ratios;
}

inline void linear_part(const Int8Asked& asked) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<int64_t, int64_t>> shapes = {{768, 768}, {3072, 768}, {768, 3072}};
  if (asked.is_small) shapes = {{48, 20}, {20, 48}};
  const std::vector<int64_t> all_rows =
      asked.is_small ? std::vector<int64_t>{9} : std::vector<int64_t>{1024, 8};
  for (const int64_t rows : all_rows) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      at::manual_seed(1);
      std::vector<double> dynamic, is_static;
      for (const auto& [out, in] : shapes) {
        const std::string shape = fmt::format("{} rows, {} → {}", rows, in, out);
        const LinearRatios ratios =
            measure_layers(asked, LinearLayers(out, in, rows), dtype, shape);
        dynamic.push_back(ratios.dynamic);
        is_static.push_back(ratios.is_static);
      }
      const bool is_fp32 = dtype == at::kFloat;
      const Goal goal = same_goal(rows >= 1024 ? (is_fp32 ? 0.4 : 0.7) : (is_fp32 ? 0 : 0.6));
      for (const auto& [scheme, values] :
           {std::pair("dynamic", dynamic), std::pair("static", is_static)}) {
        std::printf("%ld rows, %s / %s, geometric mean: %.3f\n", rows, scheme,
                    is_fp32 ? "fp32" : "bf16", geometric_mean(values));
        judge(asked.processor, geometric_mean(values), goal);
      }
    }
  }
}

}  // namespace tanren::bench
