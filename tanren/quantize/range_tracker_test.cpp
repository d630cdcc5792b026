#include "tanren/quantize/range_tracker.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;

// A number and how often it occurs.
struct Weighed {
  double value, count;
};

at::Tensor written_out(const std::vector<Weighed>& numbers) {
  std::vector<at::Tensor> parts;
  for (const auto& [value, count] : numbers) {
    parts.push_back(at::full({static_cast<int64_t>(count)}, value, at::kFloat));
  }
  return at::cat(parts);
}

std::vector<Weighed> weighed(const at::Tensor& values, double count) {
  std::vector<Weighed> numbers;
  const auto* value = values.const_data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) {
    numbers.push_back({static_cast<double>(value[i]), count});
  }
  return numbers;
}

// The sum of squared errors if numbers become bytes, by the definition.
double squared_error(const std::vector<Weighed>& numbers, const InputScale& input) {
  const auto scale = static_cast<double>(input.scale);
  double sum = 0;
  for (const auto& [value, count] : numbers) {
    const double byte = std::clamp(std::nearbyint(value / scale) + input.zero_point, 0.0, 255.0);
    const double error = value - (byte - input.zero_point) * scale;
    sum += count * error * error;
  }
  return sum;
}

// The least error of all ranges whose ends are multiples of 2 per cent of the numbers' ends.
double least_error(const std::vector<Weighed>& numbers) {
  double low = 0, high = 0;
  for (const auto& number : numbers) {
    low = std::min(low, number.value), high = std::max(high, number.value);
  }
  const auto parts = [](double end) {
    std::vector<double> ends;
    for (int i = 1; i <= 50; ++i) ends.push_back(end * i / 50);
    return end == 0 ? std::vector<double>{0} : ends;
  };
  double least = std::numeric_limits<double>::infinity();
  for (const double from : parts(low)) {
    for (const double to : parts(high)) {
      const auto scale = static_cast<float>((to - from) / 255);
      const auto zero_point =
          static_cast<int32_t>(std::nearbyint(-from / static_cast<double>(scale)));
      least = std::min(least, squared_error(numbers, {.scale = scale, .zero_point = zero_point}));
    }
  }
  return least;
}

InputScale tracked(RangeKind kind, const std::vector<at::Tensor>& parts) {
  RangeTracker tracker(kind, "layer.weight");
  for (const at::Tensor& part : parts) tracker.add(part);
  return tracker.scale();
}

TEST(RangeTracker, refuses_numbers_that_are_not_finite_and_names_the_weight) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    at::Tensor x = at::ones({3, 5});
    x[1][2] = bad;
    for (const auto kind : {RangeKind::minmax, RangeKind::mse}) {
      const auto error = error_of<InputError>([&] { (void)tracked(kind, {x}); });
      TANREN_EXPECT_CONTAINS(error, "the input of layer.weight has a number that is not finite");
    }
  }
}

TEST(RangeTracker, refuses_a_range_of_nothing) {
  TANREN_EXPECT_CONTAINS(error_of<Error>([] {
                           (void)tracked(RangeKind::mse, {at::empty({0, 4})});
                         }),
                         "layer.weight was never seen");
}

TEST(RangeTracker, a_constant_input_is_exact) {
  for (const float number : {3.7F, -0.003F, 1.0F, -3e38F, 3e38F, 2e-36F, 1.2e-38F, 0.0F}) {
    for (const auto kind : {RangeKind::minmax, RangeKind::mse}) {
      const auto x = at::full({4, 3}, number, at::kFloat);
      const InputScale input = tracked(kind, {x, x});
      check_input_scale(input, "constant");
      const float inverse = 1 / input.scale;  // as quantized_linear rounds
      const float byte = std::clamp(
          std::nearbyint(number * inverse) + static_cast<float>(input.zero_point), 0.0F, 255.0F);
      EXPECT_EQ((byte - static_cast<float>(input.zero_point)) * input.scale, number) << number;
    }
  }
}

TEST(RangeTracker, minmax_covers_what_was_seen_and_0) {
  const auto x = at::linspace(-1, 3, 100);
  const InputScale both = tracked(RangeKind::minmax, {x.narrow(0, 50, 50), x.narrow(0, 0, 50)});
  EXPECT_FLOAT_EQ(both.scale, 4.0F / 255);
  EXPECT_EQ(both.zero_point, 64);  // 63.75
  const InputScale positive = tracked(RangeKind::minmax, {x + 3});
  EXPECT_FLOAT_EQ(positive.scale, 6.0F / 255);
  EXPECT_EQ(positive.zero_point, 0);
  const InputScale negative = tracked(RangeKind::minmax, {x - 5});
  EXPECT_FLOAT_EQ(negative.scale, 6.0F / 255);
  EXPECT_EQ(negative.zero_point, 255);
}

TEST(RangeTracker, mse_finds_the_range_with_the_least_squared_error) {
  at::manual_seed(3);
  const at::Tensor normal = at::randn({10000});
  std::vector<Weighed> far = weighed(normal, 200);  // two million numbers, one far away
  far.push_back({40, 1});
  std::vector<Weighed> skewed = weighed(normal.relu() * 5, 200);
  skewed.push_back({150, 1});
  std::vector<Weighed> both = weighed(normal.sub(1).exp(), 200);
  both.push_back({-30, 2});
  const std::vector<std::vector<Weighed>> cases = {weighed(normal, 1), far, skewed, both,
                                                   weighed(at::rand({10000}) - 0.25, 1)};
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const at::Tensor x = written_out(cases[i]);
    const double found = squared_error(cases[i], tracked(RangeKind::mse, {x}));
    const double all = squared_error(cases[i], tracked(RangeKind::minmax, {x}));
    EXPECT_LE(found, 1.05 * least_error(cases[i]));
    EXPECT_LE(found, 1.03 * all);
    if (i == 1 || i == 2) {
      EXPECT_LT(found, 0.5 * all);  // it clamps
    }
  }
}

TEST(RangeTracker, mse_keeps_numbers_that_bytes_hold_exactly) {
  const at::Tensor x = at::arange(256).to(at::kFloat) / 255;
  const InputScale input = tracked(RangeKind::mse, {x});
  EXPECT_EQ(input.zero_point, 0);
  EXPECT_LT(squared_error(weighed(x, 1), input), 1e-9);
}

TEST(RangeTracker, the_range_is_the_same_bit_by_bit_in_any_split_and_order) {
  at::manual_seed(4);
  // The numbers grow: later parts widen the range of earlier ones.
  const at::Tensor x = at::randn({2100}) * at::logspace(-6, 3, 2100);
  for (const auto kind : {RangeKind::minmax, RangeKind::mse}) {
    const InputScale whole = tracked(kind, {x});
    for (const int64_t size : {1, 7, 300}) {
      auto parts = x.split(size);
      for (int turn = 0; turn < 2; ++turn) {
        const InputScale split = tracked(kind, parts);
        EXPECT_EQ(split.scale, whole.scale) << size;
        EXPECT_EQ(split.zero_point, whole.zero_point) << size;
        std::reverse(parts.begin(), parts.end());
      }
    }
  }
}

TEST(NumberCounts, keeps_short_numbers_as_they_are_and_others_to_a_two_thousandth) {
  NumberCounts counts;
  const std::vector<float> numbers = {0.5F,   -3,      0.5F,   0,   -0.0F,
                                      1e-40F, 3.4e38F, -1e-3F, 255, 1.0F / 3};
  counts.add(numbers.data(), std::ssize(numbers));
  const auto bins = counts.bins();
  double total = 0;
  for (size_t i = 0; i < bins.size(); ++i) {
    total += bins[i].count;
    if (i > 0) {
      EXPECT_LE(bins[i - 1].value, bins[i].value);
    }
    const bool is_near = std::any_of(numbers.begin(), numbers.end(), [&](float number) {
      const auto wide = static_cast<double>(number);
      return std::abs(wide - bins[i].value) <= std::abs(wide) / 2048 + 1e-41;
    });
    EXPECT_TRUE(is_near) << bins[i].value;
  }
  EXPECT_EQ(total, 10);
  const auto count_of = [&](double value) {
    double count = 0;
    for (const auto& bin : bins) count += bin.value == value ? bin.count : 0;
    return count;
  };
  EXPECT_EQ(count_of(0.5), 2);
  EXPECT_EQ(count_of(-3), 1);
  EXPECT_EQ(count_of(255), 1);
  EXPECT_EQ(count_of(0), 2);
}

}  // namespace
}  // namespace tanren
