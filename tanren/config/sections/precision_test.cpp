#include "tanren/config/sections/precision.h"

#include "tanren/config/config_test_util.h"
#include "tanren/config/levels.h"
#include "tanren/config/write_config.h"

namespace tanren {
namespace {

using config_test::error_of;
using config_test::kGood;
using config_test::parse;

std::string text_of(const std::string& precision, const std::string& rest = "") {
  return std::string(kGood) + "[precision]\n" + precision + "\n" + rest;
}

// The one error line about such a config; "accepted" if the config is valid.
std::string line_of(const std::string& precision, const std::string& rest = "") {
  const auto lines = config_test::lines_of(error_of(text_of(precision, rest)));
  return lines.size() == 1 ? lines.front() : "more than one line: " + lines[0] + lines[1];
}

struct Row {
  const char* precision;
  LevelProperties is;
};

TEST(Levels, come_to_apexs_table) {
  const std::vector<Row> rows = {
      {"", {"auto", "fp32", true, false, false, "auto"}},
      {"mode = \"fp64\"", {"fp64", "fp64", true, false, false, "auto"}},
      {"level = \"O0\"", {"fp32", "fp32", false, false, false, "none"}},
      {"level = \"O1\"", {"fp16", "fp32", true, false, false, "dynamic"}},
      {"level = \"O2\"", {"fp16", "fp16", false, true, true, "dynamic"}},
      {"level = \"O3\"", {"fp16", "fp16", false, false, false, "none"}},
      {"level = \"O1\"\nmode = \"bf16\"", {"bf16", "fp32", true, false, false, "none"}},
      {"level = \"O2\"\nmode = \"bf16\"", {"bf16", "bf16", false, true, true, "none"}},
      {"level = \"O2\"\nkeep_batchnorm_fp32 = false",
       {"fp16", "fp16", false, false, true, "dynamic"}},
      {"level = \"O3\"\nmaster_weights = true", {"fp16", "fp16", false, false, true, "none"}},
      {"level = \"O3\"\nloss_scale = 128", {"fp16", "fp16", false, false, false, "128"}},
      {"level = \"O2\"\ncast_model_type = \"bf16\"", {"bf16", "bf16", false, true, true, "none"}},
  };
  for (const Row& row : rows) {
    const RunConfig config = parse(text_of(row.precision, "[optimizer]\nkind = \"sgd\"\n"));
    const LevelProperties found = properties_of(config.precision);
    EXPECT_EQ(found.mode, row.is.mode) << row.precision;
    EXPECT_EQ(found.cast_model_type, row.is.cast_model_type) << row.precision;
    EXPECT_EQ(found.patch_torch_functions, row.is.patch_torch_functions) << row.precision;
    EXPECT_EQ(found.keep_batchnorm_fp32, row.is.keep_batchnorm_fp32) << row.precision;
    EXPECT_EQ(found.master_weights, row.is.master_weights) << row.precision;
    EXPECT_EQ(found.loss_scale, row.is.loss_scale) << row.precision;
  }
}

TEST(Levels, refuse_what_contradicts_them_in_one_line_each) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"level = \"O4\"", "precision.level \"O4\" is unknown; one of O0, O1, O2, O3"},
      {"level = \"O1\"\nmode = \"fp32\"", "computes in 16 bits, and precision.mode is \"fp32\""},
      {"level = \"O2\"\nmode = \"fp64\"", "computes in 16 bits, and precision.mode is \"fp64\""},
      {"level = \"O0\"\nmode = \"bf16\"", "precision.level \"O0\" computes in fp32"},
      {"level = \"O1\"\ncast_model_type = \"fp16\"", "casts operators and keeps the weights fp32"},
      {"level = \"O1\"\nkeep_batchnorm_fp32 = true", "does not go with precision.level \"O1\""},
      {"level = \"O1\"\nmaster_weights = false", "precision.master_weights does not go with"},
      {"level = \"O2\"\npatch_torch_functions = true", "take O1, which is that"},
      {"level = \"O2\"\ncast_model_type = \"fp32\"", "leaves nothing of precision.level \"O2\""},
      {"level = \"O2\"\nmode = \"fp16\"\ncast_model_type = \"bf16\"", "contradicts precision.mode"},
      {"level = \"O0\"\nmaster_weights = true", "does nothing under precision.level \"O0\""},
      {"level = \"O0\"\nkeep_batchnorm_fp32 = true", "does nothing under precision.level \"O0\""},
      {"level = \"O0\"\ncast_model_type = \"int8\"", "one of fp32, fp16, bf16"},
      {"master_weights = true", "precision.master_weights changes a property of a level"},
      {"cast_model_type = \"fp16\"", "precision.cast_model_type changes a property of a level"},
      {"cast_model_outputs = \"fp8\"", "one of fp32, fp16, bf16"},
      {"loss_scale = -1", "precision.loss_scale is -1; give a number from 1e-37"},
      {"loss_scale = 8\nmax_scale = 1024", "precision.max_scale does nothing"},
      {"loss_scale = 8\ninitial_scale = 4", "precision.initial_scale does nothing"},
      {"max_scale = 0", "precision.max_scale is 0"},
      {"max_scale = 1024\ninitial_scale = 4096",
       "precision.initial_scale 4096 is above precision.max_scale 1024"},
      {"level = \"O1\"\ninitial_scale = 1e9", "above precision.max_scale 16777216"},
      {"level = \"O3\"\nreport_flush = true", "precision.report_flush sees nothing"},
  };
  for (const auto& [precision, line] : cases) {
    const std::string found = line_of(precision, "[optimizer]\nkind = \"sgd\"\n");
    EXPECT_NE(found.find(line), std::string::npos) << precision << "\n" << found;
  }
}

TEST(Levels, with_weights_of_16_bits_refuse_what_would_lose_numbers) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"level = \"O2\"\n", "[average]\nkind = \"ema\"\n"},
      {"level = \"O3\"\n", "[optimizer]\nkind = \"adam\"\n"},
      {"level = \"O3\"\nmode = \"bf16\"\n", "[optimizer]\nstate = \"8bit\"\n"},
      {"level = \"O3\"\nmode = \"bf16\"\n", "[parallel]\ncompress = \"bf16\"\n"}};
  const std::vector<std::string> lines = {"would average weights of 16 bits",
                                          "optimizer.eps is 1e-08, which is 0 in fp16",
                                          "packs moments of fp32", "has nothing to round"};
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string problem = line_of(cases[i].first, cases[i].second);
    EXPECT_NE(problem.find(lines[i]), std::string::npos) << problem;
  }
  EXPECT_EQ(line_of("level = \"O3\"\n", "[optimizer]\neps = 1e-4\n"), "accepted");
  EXPECT_EQ(line_of("level = \"O3\"\n", "[optimizer]\nkind = \"sgd\"\n"), "accepted");
  EXPECT_EQ(line_of("level = \"O3\"\nmode = \"bf16\"\n"), "accepted");
  EXPECT_EQ(line_of("level = \"O1\"\n", "[average]\nkind = \"ema\"\n"), "accepted");
}

TEST(Levels, are_written_and_read_back_with_what_was_set_over_them) {
  const RunConfig config = parse(text_of(
      "level = \"O2\"\nkeep_batchnorm_fp32 = false\nmaster_weights = false\nmode = \"bf16\""));
  const RunConfig again = parse(to_toml(config));
  EXPECT_EQ(again.precision.level, "O2");
  EXPECT_EQ(again.precision.keep_batchnorm_fp32, std::optional(false));
  EXPECT_EQ(again.precision.master_weights, std::optional(false));
  EXPECT_EQ(again.precision.patch_torch_functions, std::nullopt);
}

}  // namespace
}  // namespace tanren
