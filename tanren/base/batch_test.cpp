#include "tanren/base/batch.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/state.h"
#include "tanren/base/testing.h"

#include <thread>

#include <ATen/ATen.h>

namespace tanren {
namespace {

Batch five_samples() {
  Batch batch;
  batch.fields.set("inputs", at::arange(10, at::kFloat).view({5, 2}));
  batch.fields.set("labels", at::arange(5));
  batch.ids = at::arange(100, 105);
  return batch;
}

TEST(TensorMap, an_unknown_name_lists_the_known_ones) {
  const auto error = testing::error_of<DataError>([] { five_samples()["label"]; });
  TANREN_EXPECT_CONTAINS(error, "no tensor label");
  TANREN_EXPECT_CONTAINS(error, "inputs, labels");
}

// A reference or a pointer into a temporary would outlive what it refers to.
template <typename Map>
constexpr bool kFinds = requires(Map&& map) {
  std::forward<Map>(map).find("x");
};
static_assert(kFinds<TensorMap&> && !kFinds<TensorMap>);
static_assert(std::is_same_v<decltype(std::declval<TensorMap>().at("x")), at::Tensor>);
static_assert(std::is_same_v<decltype(std::declval<Batch>()["x"]), at::Tensor>);

TEST(TensorMap, replacing_keeps_the_place) {
  auto fields = five_samples().fields;
  fields.set("inputs", at::zeros({5}));
  EXPECT_EQ(fields.size(), 2);
  EXPECT_EQ(fields.begin()->first, "inputs");
  EXPECT_EQ(fields.at("inputs").dim(), 1);
}

TEST(Batch, a_slice_is_a_view_of_its_samples) {
  const Batch batch = five_samples();
  const Batch part = batch.slice(1, 4);
  EXPECT_EQ(part.size(), 3);
  EXPECT_TRUE(at::equal(part.ids, at::arange(101, 104)));
  EXPECT_TRUE(at::equal(part["labels"], at::arange(1, 4)));
  part["inputs"].fill_(-1);
  EXPECT_EQ(batch["inputs"][1][0].item<float>(), -1);
  EXPECT_EQ(batch["inputs"][4][0].item<float>(), 8);
  EXPECT_EQ(batch.slice(2, 2).size(), 0);
}

TEST(Batch, an_empty_one_has_size_zero) { EXPECT_EQ(Batch{}.size(), 0); }

TEST(Batch, the_ids_stay_on_the_cpu) {
  const Batch moved = five_samples().to(at::kMeta);
  EXPECT_TRUE(moved["inputs"].is_meta());
  EXPECT_TRUE(moved.ids.is_cpu());
}

TEST(GlobalBatch, an_unknown_count_names_the_known_ones) {
  GlobalBatch batch;
  batch.counts["samples"] = 5;
  EXPECT_EQ(batch.count("samples"), 5);
  TANREN_EXPECT_CONTAINS(testing::error_of<DataError>([&] { batch.count("tokens"); }), "samples");
}

TEST(DeviceReads, each_read_counts_on_the_thread_that_made_it) {
  const int64_t before = num_device_reads();
  EXPECT_EQ(read_to_host(at::scalar_tensor(2.5).view({1})), std::vector<double>{2.5});
  EXPECT_EQ(read_to_host(at::arange(3)), (std::vector<double>{0, 1, 2}));
  const auto strided = at::arange(6, at::kDouble).view({3, 2}).select(1, 1);
  EXPECT_EQ(read_to_host(strided), (std::vector<double>{1, 3, 5}));
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    EXPECT_EQ(read_to_host(at::arange(3, dtype)), (std::vector<double>{0, 1, 2}));
  }
  std::thread([] { read_to_host(at::zeros({1})); }).join();
  EXPECT_EQ(num_device_reads() - before, 5);
}

TEST(State, a_missing_value_or_another_type_is_a_checkpoint_error) {
  State state;
  state.values["step"] = int64_t{7};
  state.values["scale"] = 0.5;
  TANREN_EXPECT_CONTAINS(
      testing::error_of<CheckpointError>([&] { value_of<int64_t>(state, "epoch"); }), "epoch");
  EXPECT_THROW(value_of<bool>(state, "step"), CheckpointError);
  EXPECT_THROW(value_of<int64_t>(state, "scale"), CheckpointError);
  EXPECT_EQ(value_of<int64_t>(state, "step"), 7);
  EXPECT_EQ(value_of<double>(state, "step"), 7.0);
  EXPECT_EQ(value_of<double>(state, "scale"), 0.5);
}

}  // namespace
}  // namespace tanren
