#include "tanren/base/memory_tag.h"
#include "tanren/blocks/block.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <gtest/gtest.h>

#include <stdexcept>

namespace tanren {
namespace {

at::Tensor leaf() { return at::ones({3}).requires_grad_(true); }

TEST(BlockTrail, names_the_innermost_block_that_an_exception_left) {
  const BlockTrailScope trail;
  EXPECT_THROW(run_block("outer",
                         [] {
                           run_block("fine", [] { return at::ones({}); });
                           return run_block("inner",
                                            []() -> at::Tensor { throw std::runtime_error("no"); });
                         }),
               std::runtime_error);
  EXPECT_EQ(block_name(block_trail().failed), "inner");
  EXPECT_EQ(memory_tag().block, 0);
}

TEST(BlockTrail, says_nothing_when_nobody_records) {
  { const BlockTrailScope trail; }
  at::Tensor y = run_block("unseen", [] { return leaf() * 2; });
  EXPECT_TRUE(block_trail().passages.empty());
  EXPECT_EQ(block_trail().block_of(y.grad_fn()->sequence_nr()), 0);
}

TEST(BlockTrail, knows_which_block_made_a_node_of_backward) {
  const BlockTrailScope trail;
  const at::Tensor x = leaf();
  at::Tensor inner;
  const at::Tensor outer = run_block("layers.0", [&] {
    const at::Tensor before = x * 2;
    inner = run_block("layers.0.attention", [&] { return before.exp(); });
    return inner + before;
  });
  const at::Tensor after = outer.sum();
  const auto block_of = [](const at::Tensor& tensor) {
    return block_name(block_trail().block_of(tensor.grad_fn()->sequence_nr()));
  };
  EXPECT_EQ(block_of(inner), "layers.0.attention");
  EXPECT_EQ(block_of(outer), "layers.0");
  EXPECT_EQ(block_of(after), "");
}

// As in a stage of a pipeline: the second forward runs before the first one's backward.
TEST(BlockTrail, of_a_forward_is_kept_for_its_backward_while_other_forwards_run) {
  BlockPassages first, second;
  const at::Tensor x = leaf();
  at::Tensor of_first, of_second;
  {
    const BlockTrailScope trail(first);
    of_first = run_block("layers.0", [&] { return x.exp(); });
  }
  {
    const BlockTrailScope trail(second);
    of_second = run_block("layers.1", [&] { return x.exp(); });
  }
  EXPECT_TRUE(block_trail().passages.empty());
  const auto block_of = [](const at::Tensor& tensor) {
    return block_name(block_trail().block_of(tensor.grad_fn()->sequence_nr()));
  };
  const BlockTrailScope outer;
  run_block("outer", [&] { return x.exp(); });
  {
    const BlockTrailScope trail(first);
    EXPECT_EQ(block_of(of_first), "layers.0");
    EXPECT_EQ(block_of(of_second), "");
  }
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  ASSERT_EQ(block_trail().passages.size(), 1u);
  EXPECT_EQ(block_name(block_trail().passages[0].id), "outer");
  EXPECT_TRUE(block_trail().recording);
}

TEST(BlockTrail, a_name_keeps_its_number) {
  const uint16_t id = block_id("a.b");
  EXPECT_GT(id, 0);
  EXPECT_EQ(block_id(std::string("a.") + "b"), id);
  EXPECT_NE(block_id("a.c"), id);
  EXPECT_EQ(block_name(id), "a.b");
}

}  // namespace
}  // namespace tanren
