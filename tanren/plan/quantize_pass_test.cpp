#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/plan/planner.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

using testing::error_of;

struct Quantized {
  RunConfig config;
  ModelProfile profile;

  explicit Quantized(const std::string& scheme) {
    config.run.steps = 100;
    config.precision.mode = "fp32";
    config.quantize.scheme = scheme;
    profile.train_samples = 1000;
    profile.metrics = {"accuracy"};
    profile.parameters = {
        {"stem.weight", {8, 3, 3, 3}}, {"head.weight", {10, 8}}, {"head.bias", {10}}};
    profile.num_parameters = profile.num_trainable = 306;
  }
  Plan plan() const { return make_plan(config, {}, profile); }
  std::string refusal() const {
    return error_of<ConfigError>([&] { (void)plan(); });
  }
  // "value|reason"; empty: no such line.
  std::string line(const std::string& key) const {
    for (const auto& line : plan().lines) {
      if (line.key == key) return line.value + "|" + line.reason;
    }
    return "";
  }
};

TEST(QuantizePass, refuses_a_pattern_that_keeps_nothing_and_names_the_nearest) {
  Quantized quantized("static");
  quantized.config.quantize.keep = {"head.*", "haed.weight"};
  TANREN_EXPECT_CONTAINS(quantized.refusal(),
                         "[plan] quantize.keep \"haed.weight\" matches no parameter (nearest: "
                         "head.weight)");
}

TEST(QuantizePass, refuses_too_few_samples_and_fp16) {
  Quantized quantized("dynamic");
  quantized.profile.train_samples = 7;
  TANREN_EXPECT_CONTAINS(quantized.refusal(), "needs 8 samples of training data");
  TANREN_EXPECT_CONTAINS(quantized.refusal(), "there are 7");
  quantized.profile.train_samples = 8;
  EXPECT_EQ(quantized.plan().quantize.samples, 8);
  quantized.config.precision.mode = "fp16";
  TANREN_EXPECT_CONTAINS(quantized.refusal(), "precision.mode is fp16");
  for (const char* mode : {"bf16", "fp64"}) {
    quantized.config.precision.mode = mode;
    EXPECT_NO_THROW((void)quantized.plan()) << mode;
  }
}

TEST(QuantizePass, tells_scheme_range_samples_and_what_is_kept) {
  Quantized quantized("static");
  quantized.config.quantize.keep = {"head.*"};
  quantized.config.quantize.range = "minmax";
  quantized.config.quantize.samples = 100;
  quantized.config.quantize.tolerance = 0.25;
  const QuantizePlan plan = quantized.plan().quantize;
  EXPECT_EQ(plan.scheme, QuantizeScheme::calibrated);
  EXPECT_EQ(plan.keep, quantized.config.quantize.keep);
  EXPECT_EQ(plan.samples, 100);
  EXPECT_EQ(plan.range, RangeKind::minmax);
  EXPECT_EQ(plan.tolerance, 0.25);
  EXPECT_EQ(quantized.line("quantize").find("static|"), 0u);
  EXPECT_EQ(quantized.line("quantize.keep"),
            "head.*|2 of 3 tensors, 90 of 306 parameters stay as they are");
  EXPECT_EQ(quantized.line("quantize.range").find("minmax|"), 0u);
  EXPECT_EQ(quantized.line("quantize.samples").find("100|of the training data"), 0u);
  EXPECT_EQ(quantized.line("quantize.tolerance").find("0.25|"), 0u);
}

TEST(QuantizePass, takes_all_training_data_where_there_are_fewer_samples) {
  Quantized quantized("dynamic");
  quantized.profile.train_samples = 99;
  EXPECT_EQ(quantized.plan().quantize.samples, 99);
  EXPECT_EQ(quantized.line("quantize.samples").find("99|all there are"), 0u);
  EXPECT_EQ(quantized.line("quantize.range"), "");  // inputs get their scale at run time
}

TEST(QuantizePass, refuses_keys_that_have_no_meaning_without_a_scheme) {
  const auto refusal = [](const auto& change) {
    Quantized quantized("none");
    change(quantized.config.quantize);
    return quantized.refusal();
  };
  EXPECT_EQ(
      refusal([](QuantizeOptions& o) { o.samples = 64; }),
      "[plan] quantize.samples has no meaning for quantize.scheme \"none\"; drop it, or set a "
      "scheme");
  TANREN_EXPECT_CONTAINS(refusal([](QuantizeOptions& o) { o.keep = {"a"}; }), "quantize.keep has");
  TANREN_EXPECT_CONTAINS(refusal([](QuantizeOptions& o) { o.range = "minmax"; }),
                         "quantize.range has");
  TANREN_EXPECT_CONTAINS(refusal([](QuantizeOptions& o) { o.tolerance = 1; }),
                         "quantize.tolerance has");
}

TEST(QuantizePass, tells_nothing_without_a_scheme) {
  const Quantized quantized("none");
  EXPECT_EQ(quantized.plan().quantize.scheme, QuantizeScheme::none);
  for (const auto& line : quantized.plan().lines) {
    EXPECT_NE(line.key.substr(0, 8), "quantize");
  }
}

}  // namespace
}  // namespace tanren
