#include "tanren/anatomy/operator_recorder.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/blocks/block.h"
#include "tanren/dry/multiply_adds.h"
#include "tanren/ops/quantized_convolution.h"
#include "tanren/ops/quantized_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

namespace tanren {
namespace {

// The sum of `name` in `pass`; no calls: it was not recorded.
OperatorTotal of(const OperatorRecording& recording, const std::string& name, Pass pass) {
  for (const OperatorTotal& total : recording.operators) {
    if (total.name == name && total.pass == pass) return total;
  }
  return {};
}

// One step of `forward` and its backward.
OperatorRecording record(const std::function<at::Tensor()>& forward,
                         const std::function<void()>& update = {}) {
  OperatorRecorder recorder(Detail::operators, {});
  const BlockTrailScope trail;
  recorder.begin_step();
  recorder.begin_forward();
  const at::Tensor loss = forward();
  recorder.end_forward();
  torch::autograd::backward({loss}, {});
  if (update) update();
  recorder.end_step();
  return recorder.recording();
}

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

TEST(OperatorRecorderTest, two_at_once_are_refused) {
  const OperatorRecorder first(Detail::passes, {});
  EXPECT_THROW(OperatorRecorder(Detail::passes, {}), Error);
}

TEST(OperatorRecorderTest, what_runs_outside_of_a_step_is_not_heard) {
  const OperatorRecorder recorder(Detail::operators, {});
  at::mm(at::ones({4, 4}), at::ones({4, 4}));
  EXPECT_TRUE(recorder.recording().operators.empty());
}

TEST(OperatorRecorderTest, other_threads_are_not_heard) {
  const auto recording = record([] {
    std::thread([] { at::mm(at::ones({4, 4}), at::ones({4, 4})); }).join();
    return leaf({3}).sum();
  });
  EXPECT_EQ(of(recording, "aten::mm", Pass::forward).calls, 0);
  EXPECT_EQ(of(recording, "aten::sum", Pass::forward).calls, 1);
}

TEST(OperatorRecorderTest, a_product_counts_once_with_its_flops_in_both_passes) {
  const at::Tensor x = leaf({8, 16}), weight = leaf({32, 16}), bias = leaf({32});
  const auto recording = record([&] { return at::linear(x, weight, bias).sum(); });
  const auto forward = of(recording, "aten::addmm", Pass::forward);
  EXPECT_EQ(forward.calls, 1);
  EXPECT_EQ(forward.flops, 2 * 8 * 16 * 32);
  EXPECT_EQ(forward.bytes, 4 * (8 * 16 + 32 * 16 + 32 + 8 * 32));
  EXPECT_EQ(forward.of, OperatorClass::contractions);
  EXPECT_EQ(of(recording, "aten::linear", Pass::forward).calls, 0) << "it is composed of addmm";
  const auto backward = of(recording, "aten::mm", Pass::backward);
  EXPECT_EQ(backward.calls, 2);
  EXPECT_EQ(backward.flops, 2 * forward.flops);
  for (const auto& node : recording.nodes) EXPECT_GT(node.seconds, 0) << node.name;
  EXPECT_TRUE(std::any_of(recording.nodes.begin(), recording.nodes.end(),
                          [](const NodeTotal& node) { return node.name == "AddmmBackward0"; }));
}

TEST(OperatorRecorderTest, a_convolution_and_its_gradients_have_their_flops) {
  const at::Tensor x = leaf({2, 3, 8, 8}), weight = leaf({4, 3, 3, 3});
  const int64_t flops = 2 * (2 * 4 * 6 * 6) * (3 * 3 * 3);
  const auto recording = record([&] { return at::conv2d(x, weight).sum(); });
  EXPECT_EQ(of(recording, "aten::convolution", Pass::forward).flops, flops);
  EXPECT_EQ(of(recording, "aten::convolution_backward", Pass::backward).flops, 2 * flops);
  const auto alone = record([&] { return at::conv2d(x.detach(), weight).sum(); });
  EXPECT_EQ(of(alone, "aten::convolution_backward", Pass::backward).flops, flops)
      << "of the weight alone";
}

TEST(OperatorRecorderTest, attention_has_its_flops_and_five_products_backward) {
  const int64_t n = 2, heads = 3, tokens = 8, width = 4;
  const at::Tensor q = leaf({n, heads, tokens, width}), k = leaf({n, heads, tokens, width}),
                   v = leaf({n, heads, tokens, width});
  const auto recording = record([&] { return at::scaled_dot_product_attention(q, k, v).sum(); });
  int64_t forward = 0, backward = 0;
  for (const OperatorTotal& total : recording.operators) {
    if (total.of != OperatorClass::contractions) continue;
    (total.pass == Pass::forward ? forward : backward) += total.flops;
  }
  const int64_t product = 2 * n * heads * tokens * tokens * width;
  EXPECT_EQ(forward, 2 * product);
  EXPECT_EQ(backward, 5 * product);
}

TEST(OperatorRecorderTest, our_attention_has_the_same_flops_packed_and_apart) {
  const int64_t n = 2, tokens = 8, width = 12;
  const at::Tensor q = at::empty({n, tokens, width}), packed = at::empty({n, tokens, 3 * width}),
                   out = at::empty({n, tokens, width});
  const int64_t product = n * tokens * tokens * width;
  const std::vector<c10::IValue> apart{q, q, q}, together{packed};
  EXPECT_EQ(multiply_adds("tanren::attention", apart, {}), 2 * product);
  EXPECT_EQ(multiply_adds("tanren::attention", together, {}), 2 * product);
  const std::vector<c10::IValue> apart_back{out, out, q, q, q}, together_back{out, out, packed};
  EXPECT_EQ(multiply_adds("tanren::attention_backward", apart_back, {}), 5 * product);
  EXPECT_EQ(multiply_adds("tanren::attention_backward", together_back, {}), 5 * product);
}

TEST(OperatorRecorderTest, products_of_bytes_have_the_flops_of_their_layers) {
  const QuantizedWeight w = quantize_weight(at::ones({10, 24}), "w"),
                        kernel = quantize_weight(at::ones({16, 4, 3, 3}), "w");
  const PackedWeight packed = pack_weight(w);
  const QuantizedConvolution prepared = prepare_convolution(kernel, {0.1F, 3}, 1, 1);
  const at::Tensor x = at::ones({3, 5, 24}), images = at::ones({2, 4, 7, 6});
  const auto recording = record([&] {
    quantized_linear(x, packed, {}, {}, at::kFloat);
    quantized_convolution(images, prepared, {}, at::kFloat);
    return leaf({1}).sum();
  });
  EXPECT_EQ(of(recording, "tanren::quantized_linear", Pass::forward).flops, 2 * 3 * 5 * 24 * 10);
  EXPECT_EQ(of(recording, "tanren::quantized_convolution", Pass::forward).flops,
            2 * 2 * 7 * 6 * 16 * 36);
}

TEST(OperatorRecorderTest, kernels_of_ours_are_heard_by_their_record) {
  const at::Tensor x = at::ones({6}), y = at::empty({6});
  const auto recording = record([&] {
    {
      const OperatorRecord kernel("tanren::gelu", x, y, at::Tensor());
      at::neg(x);  // inside the kernel: not counted again
    }
    return leaf({1}).sum();
  });
  const auto total = of(recording, "tanren::gelu", Pass::forward);
  EXPECT_EQ(total.calls, 1);
  EXPECT_EQ(total.bytes, 2 * 6 * 4);
  EXPECT_EQ(total.of, OperatorClass::element_wise);
  EXPECT_EQ(of(recording, "aten::neg", Pass::forward).calls, 0);
}

TEST(OperatorRecorderTest, views_move_no_bytes_and_in_place_operators_do) {
  const auto recording = record([&] {
    const at::Tensor x = at::ones({8, 4});
    x.t();
    at::empty({1000});
    x.mul_(2);
    return leaf({1}).sum();
  });
  EXPECT_EQ(of(recording, "aten::t", Pass::forward).bytes, 0);
  EXPECT_EQ(of(recording, "aten::empty", Pass::forward).bytes, 0);
  EXPECT_GE(of(recording, "aten::mul_", Pass::forward).bytes, 2 * 32 * 4);
}

TEST(OperatorRecorderTest, blocks_get_their_forward_and_their_backward) {
  const at::Tensor x = leaf({8, 16}), first = leaf({16, 16}), second = leaf({16, 4});
  const auto recording = record([&] {
    const at::Tensor y =
        run_block("blocks.0", x, [&](const at::Tensor& in) { return at::mm(in, first); });
    return run_block("blocks.1", y, [&](const at::Tensor& in) { return at::mm(in, second); }).sum();
  });
  const auto block = [&](const std::string& name) {
    for (const BlockTotal& one : recording.blocks) {
      if (one.name == name) return one;
    }
    return BlockTotal{};
  };
  EXPECT_EQ(block("blocks.0").forward_flops, 2 * 8 * 16 * 16);
  EXPECT_EQ(block("blocks.0").backward_flops, 2 * 2 * 8 * 16 * 16);
  EXPECT_EQ(block("blocks.1").forward_flops, 2 * 8 * 16 * 4);
  EXPECT_EQ(block("blocks.1").backward_flops, 2 * 2 * 8 * 16 * 4);
}

TEST(OperatorRecorderTest, the_operator_that_a_recomputed_block_ends_with_does_not_count) {
  const at::Tensor x = leaf({8, 16}), first = leaf({16, 16}), second = leaf({16, 4});
  const auto recording = record([&] {
    const RecomputeScope recompute({"*"}, {});
    const auto block = [&](const at::Tensor& in) { return at::mm(at::mm(in, first), second); };
    return run_block("blocks.0", x, block).sum();
  });
  EXPECT_EQ(of(recording, "aten::mm", Pass::forward).calls, 2);
  const auto backward = of(recording, "aten::mm", Pass::backward);
  EXPECT_EQ(backward.calls, 4 + 1);
  EXPECT_EQ(backward.flops, 2 * (2 * 8 * 16 * 16 + 2 * 8 * 16 * 4) + 2 * 8 * 16 * 16);
}

TEST(OperatorRecorderTest, what_follows_backward_is_the_updates_and_no_operator_of_a_pass) {
  const auto slow = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  const auto recording = record([&] { return leaf({3}).sum(); },
                                [&] {
                                  at::neg(at::ones({3}));
                                  slow();
                                });
  EXPECT_EQ(of(recording, "aten::neg", Pass::backward).calls, 0);
  EXPECT_EQ(of(recording, "aten::neg", Pass::forward).calls, 0);
  EXPECT_GE(recording.times.update, 0.019);
  EXPECT_GT(recording.times.forward, 0);
  EXPECT_GT(recording.times.backward, 0);
}

TEST(OperatorClassTest, names_go_to_the_class_of_their_work) {
  const std::pair<const char*, OperatorClass> cases[] = {
      {"aten::addmm", OperatorClass::contractions},
      {"aten::convolution_backward", OperatorClass::contractions},
      {"tanren::attention_backward", OperatorClass::contractions},
      {"tanren::quantized_linear", OperatorClass::contractions},
      {"tanren::quantized_convolution", OperatorClass::contractions},
      {"tanren::fake_quantize_backward", OperatorClass::element_wise},
      {"tanren::quantized_embedding", OperatorClass::data_movement},
      {"aten::native_layer_norm_backward", OperatorClass::normalisations},
      {"aten::_softmax", OperatorClass::normalisations},
      {"tanren::cross_entropy", OperatorClass::normalisations},
      {"tanren::batch_norm", OperatorClass::normalisations},
      {"aten::sum", OperatorClass::normalisations},
      {"aten::add_", OperatorClass::element_wise},
      {"aten::gelu_backward", OperatorClass::element_wise},
      {"tanren::add_dropout", OperatorClass::element_wise},
      {"aten::threshold_backward", OperatorClass::element_wise},
      {"aten::_to_copy", OperatorClass::data_movement},
      {"aten::copy_", OperatorClass::data_movement},
      {"aten::embedding_dense_backward", OperatorClass::data_movement},
      {"aten::index_select", OperatorClass::data_movement},
      {"aten::transpose", OperatorClass::data_movement},
      {"aoti_torch_cpu_mm_out", OperatorClass::contractions},
      {"aoti_torch_cpu_addmm_out", OperatorClass::contractions},
      {"cpp_fused_relu_view_2", OperatorClass::element_wise},
      {"cpp_fused__log_softmax_add_view_3", OperatorClass::normalisations},
  };
  for (const auto& [name, expected] : cases) EXPECT_EQ(class_of_operator(name), expected) << name;
}

}  // namespace
}  // namespace tanren
