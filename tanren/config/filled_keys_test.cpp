#include "tanren/config/filled_keys.h"

#include "tanren/base/testing.h"

namespace tanren {
namespace {

using testing::error_of;

TEST(FilledKeys, a_text_that_is_none_is_refused_by_its_name) {
  for (const char* text :
       {"", "[model", "[model]\nnum_layer = 2\n", "[model]\nnum_layers = \"2\"\n",
        "[model]\nunfreeze = [{step = 1}]\n", "[=", "model = 3\n"}) {
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { with_filled_keys({}, text, "start.toml"); }),
                           "start.toml is no");
  }
}

TEST(FilledKeys, hold_what_was_filled_in_and_nothing_else_and_give_it_back) {
  ModelOptions asked;
  asked.from_hf = "folder";
  asked.loss = "mse";
  EXPECT_EQ(filled_keys(asked, asked), "");
  ModelOptions filled = asked;
  filled.kind = "bert";
  filled.num_layers = 6;
  filled.residual_dropout = 0.0;
  filled.pad_token = -1;
  filled.layer_norm_eps = 1e-12;
  const std::string text = filled_keys(asked, filled);
  EXPECT_EQ(text,
            "[model]\nkind = \"bert\"\nnum_layers = 6\nresidual_dropout = 0.0\nlayer_norm_eps = "
            "1e-12\npad_token = -1\n");
  EXPECT_EQ(filled_keys(with_filled_keys(asked, text, "start.toml"), filled), "");
  asked.num_layers = 3;
  EXPECT_EQ(with_filled_keys(asked, text, "start.toml").num_layers, 3);
}

}  // namespace
}  // namespace tanren
