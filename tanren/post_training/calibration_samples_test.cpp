#include "tanren/post_training/calibration_samples.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>

namespace tanren {
namespace {

// Drops the samples whose number is not a multiple of `step`, as one that skips broken files.
class Holes : public Dataset {
 public:
  Holes(int64_t size, int64_t step) : size_(size), step_(step) {}
  int64_t size() const override { return size_; }
  DataInfo info() const override { return {}; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    std::vector<int64_t> kept;
    for (const int64_t index : indices) {
      if (index % step_ == 0) kept.push_back(index);
    }
    Collated made;
    made.batch.ids = at::tensor(kept, at::kLong);
    made.batch.fields.set("inputs", made.batch.ids.to(at::kFloat));
    return made;
  }

 private:
  int64_t size_, step_;
};

TEST(CalibrationSamples, are_as_far_apart_as_they_can_be) {
  EXPECT_EQ(spread_over(10, 4), (std::vector<int64_t>{0, 2, 5, 7}));
  EXPECT_EQ(spread_over(3, 8), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(spread_over(0, 8).empty());
}

TEST(CalibrationSamples, are_those_that_the_dataset_gives) {
  const Holes tenths(100, 10);
  const auto all = spread_over(100, 100);
  const auto batches = batches_of(tenths, all, 7);
  EXPECT_EQ(batches.size(), 10u);
  for (const Collated& some : batches) EXPECT_EQ(some.batch.size(), 1);
  EXPECT_EQ(checked_count(batches), 10);
  const Batch timed = first_given(tenths, all, 8);
  ASSERT_EQ(timed.size(), 8);
  EXPECT_EQ(timed.ids[7].item<int64_t>(), 70);
}

TEST(CalibrationSamples, are_refused_if_the_dataset_gives_too_few) {
  const Holes few(100, 20);
  const auto all = spread_over(100, 100);
  TANREN_EXPECT_CONTAINS(
      testing::error_of<InputError>([&] { (void)checked_count(batches_of(few, all, 7)); }),
      "5 samples to calibrate with; give at least 8");
  TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] { (void)first_given(few, all, 8); }),
                         "the dataset gives 5 of the 100 samples that calibrate in one batch");
}

}  // namespace
}  // namespace tanren
