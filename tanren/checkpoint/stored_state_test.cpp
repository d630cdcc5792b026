#include "tanren/checkpoint/stored_state.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/stored_moment.h"
#include "tanren/formats/safetensors.h"
#include "tanren/ops/eight_bit.h"
#include "tanren/ops/memory_order.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

// A parameter [2, 3, 4] whose dim 1 has stride 1, in slices of 7, 9 and 8 elements.
struct Sliced {
  Sliced() {
    int64_t begin = 0;
    for (const int64_t size : {7, 9, 8}) {
      const std::string name = "loss.w@" + std::to_string(begin);
      slices.push_back({name, "loss.w", begin, begin + size, {2, 3, 4}, {12, 1, 3}});
      state.tensors.set(name + ".exp_avg", memory.narrow(0, begin, size));
      state.tensors.set(name + ".step", at::scalar_tensor(5));
      state.values[name + ".started"] = true;
      begin += size;
    }
  }
  at::Tensor memory = at::arange(24).to(at::kFloat);
  at::Tensor whole = memory.as_strided({2, 3, 4}, {12, 1, 3});
  State state;
  std::vector<StateSlice> slices;
};

TEST(StoredState, hands_out_any_range_of_slices_and_of_whole_tensors_alike) {
  const Sliced sliced;
  State whole;
  whole.tensors.set("loss.w.exp_avg", sliced.whole.contiguous());
  whole.tensors.set("loss.w.step", at::scalar_tensor(5));
  const std::vector<StateSlice> none;
  for (const StoredState& stored :
       {StoredState(sliced.state, sliced.slices), StoredState(whole, none)}) {
    for (const auto& strides : {std::vector<int64_t>{12, 1, 3}, {12, 4, 1}}) {
      at::Tensor laid = at::empty_strided({2, 3, 4}, strides, at::kFloat).copy_(sliced.whole);
      laid = laid.as_strided({24}, {1});
      for (const auto& [begin, end] : {std::pair{0, 24}, {0, 7}, {3, 20}, {15, 17}, {23, 24}}) {
        const StateRange range{"loss.w", begin, end, {2, 3, 4}, strides};
        EXPECT_TRUE(at::equal(stored.range(range, "exp_avg"), laid.slice(0, begin, end)));
        EXPECT_EQ(stored.range(range, "step").item<float>(), 5);
      }
    }
    const State joined = stored.joined();
    EXPECT_TRUE(at::equal(joined.tensors.at("loss.w.exp_avg"), sliced.whole));
  }
  const StoredState stored(sliced.state, sliced.slices);
  EXPECT_EQ(std::get<bool>(*stored.value("loss.w", "started")), true);
  EXPECT_EQ(stored.value("loss.w", "other"), nullptr);
}

TEST(StoredState, keeps_the_scales_of_packed_blocks_with_their_elements) {
  State state;
  std::vector<StateSlice> slices;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 512}, {512, 1000}}) {
    const std::string name = "w@" + std::to_string(begin);
    slices.push_back({name, "w", begin, end, {10, 100}, {100, 1}});
    state.tensors.set(name + ".exp_avg_codes", at::arange(begin, end).remainder(251).to(at::kByte));
    state.tensors.set(name + ".exp_avg_scales",
                      at::arange(begin / 256, (end + 255) / 256).to(at::kFloat));
  }
  const StoredState stored(state, slices);
  const StateRange range{"w", 256, 1000, {10, 100}, {100, 1}};
  EXPECT_TRUE(at::equal(stored.range(range, "exp_avg_scales"), at::arange(1, 4).to(at::kFloat)));
  EXPECT_EQ(stored.range(range, "exp_avg_codes").numel(), 744);
}

// Moments of a kernel in channels-last, packed, whole and in slices.
struct Packed {
  Packed() {
    at::manual_seed(2);
    const at::Tensor laid = at::randn({8, 16, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor codes = at::empty_like(laid, at::kByte);
    const at::Tensor scales = at::empty({5});
    to_eight_bit(in_memory(laid), true, 256, codes, scales);
    values = from_eight_bit(codes, scales, true, 256).as_strided(laid.sizes(), laid.strides());
    strides = laid.strides().vec();
    whole.tensors.set("loss.w.exp_avg_codes", codes.contiguous());
    whole.tensors.set("loss.w.exp_avg_scales", scales);
    whole.values["loss.w.order"] = std::string("0,2,3,1");
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 512}, {512, 1152}}) {
      const std::string name = "loss.w@" + std::to_string(begin);
      slices.push_back({name, "loss.w", begin, end, {8, 16, 3, 3}, strides});
      sliced.tensors.set(name + ".exp_avg_codes", in_memory(codes).slice(0, begin, end));
      sliced.tensors.set(name + ".exp_avg_scales", scales.slice(0, begin / 256, (end + 255) / 256));
    }
  }
  at::Tensor values;
  std::vector<int64_t> strides;
  State whole, sliced;
  std::vector<StateSlice> slices;
};

TEST(StoredState, unpacks_moments_in_any_order_of_memory) {
  const Packed packed;
  const std::vector<StateSlice> none;
  for (const StoredState& stored :
       {StoredState(packed.whole, none), StoredState(packed.sliced, packed.slices)}) {
    const std::vector<int64_t> plain = plain_strides({8, 16, 3, 3});
    for (const auto& strides : {packed.strides, plain}) {
      const StateRange range{"loss.w", 256, 1100, {8, 16, 3, 3}, strides};
      EXPECT_TRUE(at::equal(moment_of(stored, range, "exp_avg_codes"),
                            in_memory(packed.values, strides).slice(0, 256, 1100)));
      const int64_t scales = stored.range(range, "exp_avg_scales").numel();
      EXPECT_EQ(scales, strides == plain ? 844 : 4);  // per element, or per block
    }
    const State joined = stored.joined();
    EXPECT_EQ(joined.tensors.size(), 1u);
    EXPECT_TRUE(at::equal(joined.tensors.at("loss.w.exp_avg"), packed.values));
    EXPECT_THROW(moment_of(stored, {"loss.w", 0, 9, {8, 16, 3, 3}, plain}, "exp_avg_sq_codes"),
                 CheckpointError);
  }
}

// Older checkpoints hold packed moments 1-dim, in the order of the shape.
TEST(StoredState, lays_flat_moments_of_older_files_in_the_order_that_is_wanted) {
  at::manual_seed(3);
  const std::vector<int64_t> sizes{8, 16, 3, 3};
  const at::Tensor plain = at::randn(sizes);
  const at::Tensor codes = at::empty(sizes, at::kByte), scales = at::empty({5});
  to_eight_bit(plain.reshape({-1}), true, 256, codes, scales);
  const at::Tensor half = plain.to(at::kBFloat16);
  State state;
  state.tensors.set("loss.w.exp_avg_codes", codes.view({-1}));
  state.tensors.set("loss.w.exp_avg_scales", scales);
  state.tensors.set("loss.v.exp_avg", half.view({-1}));
  const std::vector<StateSlice> none;
  const StoredState stored(state, none);
  const at::Tensor values = from_eight_bit(codes, scales, true, 256).view(sizes);
  const auto channels_last = plain.contiguous(at::MemoryFormat::ChannelsLast).strides().vec();
  for (const auto& strides : {channels_last, plain_strides(sizes)}) {
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1152}, {256, 1100}}) {
      EXPECT_TRUE(
          at::equal(moment_of(stored, {"loss.w", begin, end, sizes, strides}, "exp_avg_codes"),
                    in_memory(values, strides).slice(0, begin, end)));
      EXPECT_TRUE(at::equal(moment_of(stored, {"loss.v", begin, end, sizes, strides}, "exp_avg"),
                            in_memory(half.to(at::kFloat), strides).slice(0, begin, end)));
    }
  }
}

TEST(StoredState, has_what_stands_in_the_slices_of_a_parameter_alone) {
  const Sliced sliced;
  const StoredState stored(sliced.state, sliced.slices);
  EXPECT_TRUE(stored.has("loss.w", "exp_avg"));
  EXPECT_TRUE(stored.has("loss.w", "started"));
  EXPECT_FALSE(stored.has("loss.w", "exp_avg_codes"));
  EXPECT_FALSE(stored.has("loss.v", "exp_avg"));
}

TEST(StoredState, says_what_is_missing) {
  Sliced sliced;
  sliced.slices.erase(sliced.slices.begin() + 1);
  const StoredState stored(sliced.state, sliced.slices);
  const StateRange range{"loss.w", 0, 24, {2, 3, 4}, {12, 1, 3}};
  EXPECT_THROW(stored.range(range, "exp_avg"), CheckpointError);
  EXPECT_THROW(stored.range({"loss.v", 0, 1, {1}, {1}}, "exp_avg"), CheckpointError);
  EXPECT_THROW(stored.range({"loss.w", 0, 1, {24}, {1}}, "exp_avg"), CheckpointError);
  EXPECT_THROW(stored.range({"loss.w", 0, 1, {2, 3, 4}, {12, 1, 3}}, "max_exp_avg"),
               CheckpointError);
}

TEST(StoredState, files_of_slices_come_back_and_damaged_lists_are_refused) {
  const testing::TemporaryFolder folder;
  const auto path = folder.path() / "optimizer-00000-of-00001.safetensors";
  const Sliced sliced;
  write_slices(path, sliced.state, sliced.slices);
  State state;
  std::vector<StateSlice> slices;
  read_slices(path, state, slices);
  EXPECT_TRUE(
      at::equal(StoredState(state, slices).joined().tensors.at("loss.w.exp_avg"), sliced.whole));
  EXPECT_EQ(state.values.size(), 3U);
  const auto refused = [&](const std::string& list) {
    write_safetensors(path, sliced.state.tensors,
                      {{"tanren.slices", list}, {"tanren.values", "{}"}});
    State other;
    std::vector<StateSlice> found;
    EXPECT_THROW(read_slices(path, other, found), CheckpointError) << list;
  };
  const auto one = [](const char* begin, const char* end, const char* shape, const char* strides) {
    return std::string(R"([{"name": "a", "of": "w", "begin": )") + begin + R"(, "end": )" + end +
           R"(, "shape": )" + shape + R"(, "strides": )" + strides + "}]";
  };
  for (const std::string& list :
       {std::string("["), std::string("{}"), std::string("[1]"), std::string(R"([{"name": "a"}])"),
        one("0", "25", "[24]", "[1]"), one("-1", "3", "[24]", "[1]"), one("3", "3", "[24]", "[1]"),
        one("0", "3", "[24]", "[2]"), one("0", "3", "[24]", "[1, 1]"),
        one("0", "3", "[-24]", "[1]"), one("0", "3", "[4294967296, 4294967296]", "[4294967296, 1]"),
        one("0", "3", "[24]", "[-1]")}) {
    refused(list);
  }
}

}  // namespace
}  // namespace tanren
