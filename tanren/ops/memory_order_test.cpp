#include "tanren/ops/memory_order.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

TEST(MemoryOrder, that_is_none_of_the_shape_is_refused) {
  for (const char* order : {"0,1,2,4", "0,1", "x", "0,0,2,3", "3,2,1,0,"}) {
    EXPECT_THROW(strides_of_order({2, 3, 4, 5}, order), CheckpointError) << order;
  }
}

TEST(MemoryOrder, in_words_is_the_order_of_any_dense_tensor) {
  const at::Tensor plain = at::arange(120).view({2, 3, 4, 5});
  for (const at::Tensor& tensor :
       {plain, plain.permute({0, 2, 3, 1}), plain.permute({3, 1, 0, 2}), plain.transpose(0, 1),
        at::arange(6).view({1, 2, 1, 3}).permute({0, 3, 2, 1}), at::arange(1).view({1, 1})}) {
    const std::string order = memory_order(tensor.sizes(), tensor.strides());
    const auto strides = strides_of_order(tensor.sizes(), order);
    EXPECT_TRUE(same_order(tensor.sizes(), strides, tensor.strides())) << order;
    EXPECT_EQ(order.empty(), tensor.is_contiguous()) << order;
    EXPECT_TRUE(at::equal(in_memory(tensor.contiguous(), strides), in_memory(tensor)));
    EXPECT_TRUE(at::equal(in_memory(tensor), at::arange(tensor.numel())));
  }
  const at::Tensor last = at::empty({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(memory_order(last.sizes(), last.strides()), "0,2,3,1");
}

}  // namespace
}  // namespace tanren
