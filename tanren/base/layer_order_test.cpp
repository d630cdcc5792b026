#include "tanren/base/layer_order.h"

#include "tanren/base/error.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

using Of = std::vector<int64_t>;

const std::vector<std::string> kGpt = {"transformer.wte.weight",    "transformer.wpe.weight",
                                       "transformer.h.0.ln.weight", "transformer.h.0.mlp.weight",
                                       "transformer.h.1.ln.weight", "transformer.h.10.ln.weight",
                                       "transformer.ln_f.weight"};

TEST(LayerOrder, a_pattern_without_match_and_names_without_numbers_are_refused) {
  EXPECT_THROW(layers_of(kGpt, {"*wte*", "transfomer.h.{}.*"}), ConfigError);
  EXPECT_THROW(layers_of({"weight", "bias"}, {}), ConfigError);
  try {
    layers_of(kGpt, {"transformer.wteweight"});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("'transformer.wte.weight'"), std::string::npos);
  }
}

TEST(LayerOrder, follow_the_blocks_of_the_names_where_no_pattern_is_given) {
  EXPECT_EQ(layers_of(kGpt, {}).of, (Of{0, 0, 1, 1, 2, 3, 4}));
  EXPECT_EQ(layers_of(kGpt, {}).count, 5);
  // ResNet: the stage's first number names a block.
  const std::vector<std::string> resnet = {"conv1.weight",          "bn1.weight",
                                           "layer1.0.conv1.weight", "layer1.1.conv1.weight",
                                           "layer2.0.conv1.weight", "fc.weight"};
  EXPECT_EQ(layers_of(resnet, {}).of, (Of{0, 0, 1, 2, 3, 4}));
  // All numbered: as many layers as blocks.
  EXPECT_EQ(layers_of({"0.weight", "0.bias", "2.weight"}, {}).of, (Of{0, 0, 1}));
  EXPECT_EQ(layers_of({"0.weight", "0.bias", "2.weight"}, {}).count, 2);
}

TEST(LayerOrder, follow_the_patterns_in_their_order_and_numbers_by_value) {
  const auto layers = layers_of(kGpt, {"*wte*", "*wpe*", "transformer.h.{}.*"});
  EXPECT_EQ(layers.of, (Of{0, 1, 2, 2, 3, 4, 5}));
  EXPECT_EQ(layers.count, 6);
  // The first pattern wins; if every name matches, the last pattern is the last layer.
  EXPECT_EQ(layers_of(kGpt, {"*.mlp.*", "*"}).of, (Of{1, 1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(layers_of(kGpt, {"*.mlp.*", "*"}).count, 2);
}

TEST(LayerOrder, scale_by_a_power_of_the_layers_above) {
  const auto scales = layer_scales(layers_of(kGpt, {}), 0.5);
  EXPECT_EQ(scales, (std::vector<double>{0.0625, 0.0625, 0.125, 0.125, 0.25, 0.5, 1}));
}

}  // namespace
}  // namespace tanren
