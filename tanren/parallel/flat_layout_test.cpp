#include "tanren/parallel/flat_layout.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <map>

namespace tanren {
namespace {

std::vector<at::Tensor> layout_parameters() {
  std::vector<at::Tensor> parameters;
  for (const int64_t size : {700, 3, 64, 5000, 1, 129, 40}) parameters.push_back(at::ones({size}));
  parameters.insert(parameters.begin() + 2, at::ones({30}, at::kDouble));
  return parameters;
}

TEST(FlatLayout, cuts_buckets_of_whole_parameters_of_one_dtype_from_the_end) {
  const auto layout =
      lay_out(layout_parameters(), {.first_bucket_bytes = 200, .bucket_bytes = 600});
  std::vector<std::vector<size_t>> members;
  for (const auto& bucket : layout.buckets) members.push_back(bucket.members);
  EXPECT_EQ(members, (std::vector<std::vector<size_t>>{{7}, {5, 6}, {4}, {3}, {2}, {1}, {0}}));
  EXPECT_EQ(layout.buckets[4].dtype, at::kDouble);
  EXPECT_EQ(layout.buckets[1].size, 130) << "without parts nothing is padded";
}

TEST(FlatLayout, gives_a_parameter_that_is_kept_alone_a_bucket_of_its_own) {
  LayoutOptions options{.alone = {6}};
  const auto members_of = [&] {
    std::vector<std::vector<size_t>> members;
    for (const auto& bucket : lay_out(layout_parameters(), options).buckets) {
      members.push_back(bucket.members);
    }
    return members;
  };
  EXPECT_EQ(members_of(), (std::vector<std::vector<size_t>>{{7}, {6}, {3, 4, 5}, {2}, {0, 1}}));
  options.parts = 2;
  EXPECT_EQ(members_of(), (std::vector<std::vector<size_t>>{{7}, {6}, {0, 1, 3, 4, 5}, {2}}));
}

TEST(FlatLayout, parts_are_equal_and_own_every_element_once) {
  const auto parameters = layout_parameters();
  for (const int64_t parts : {1, 2, 3, 4, 7}) {
    for (const int64_t unit : {1, 16, 256}) {
      const auto layout =
          lay_out(parameters,
                  {.first_bucket_bytes = 500, .bucket_bytes = 3000, .parts = parts, .unit = unit});
      for (const auto& bucket : layout.buckets) EXPECT_EQ(bucket.size % (parts * unit), 0);
      std::map<size_t, std::vector<int>> owners;
      for (size_t i = 0; i < parameters.size(); ++i) {
        owners[i].resize(static_cast<size_t>(parameters[i].numel()));
      }
      for (int64_t rank = 0; rank < parts; ++rank) {
        for (const Slice& slice : slices_of(layout, rank, parts)) {
          for (int64_t at = slice.begin; at < slice.end; ++at) {
            ++owners[slice.parameter][static_cast<size_t>(at)];
          }
          const bool large = layout.places[slice.parameter].numel >= 16 * unit;
          EXPECT_TRUE(!large || slice.begin % unit == 0) << "a block lies in two slices";
        }
      }
      for (const auto& [parameter, counts] : owners) {
        EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << parameter;
      }
    }
  }
}

}  // namespace
}  // namespace tanren
