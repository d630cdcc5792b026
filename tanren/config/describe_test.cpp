#include "tanren/config/describe.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tanren {
namespace {

TEST(Help, refuses_unknown_keys_with_the_nearest_or_the_translation) {
  for (const auto& [key, part] : {std::pair{"clip.nrom", "clip.norm"},
                                  {"lr", "optimizer.learning_rate"},
                                  {"modle", "nearest: model"},
                                  {"optimizer.groups.lr", "optimizer.learning_rate"}}) {
    try {
      help_text(key);
      FAIL() << key;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Help, explains_a_key_a_section_and_everything) {
  EXPECT_NE(help_text("clip.norm").find("default 0.0"), std::string::npos);
  EXPECT_NE(help_text("optimizer").find("optimizer.momentum"), std::string::npos);
  EXPECT_NE(help_text("optimizer.groups.weight_decay").find("a number, default not set"),
            std::string::npos);
  EXPECT_NE(help_text("data.workers").find("May change when a run resumes"), std::string::npos);
  const auto all = help_text("");
  for (const auto& key : all_keys()) EXPECT_NE(all.find(key + " ("), std::string::npos) << key;
}

// TANREN_WRITE_DOCS=1 writes the page instead.
TEST(Help, the_reference_page_is_the_generators) {
  const std::string page = TANREN_SOURCE_DIR "/docs/config.md";
  if (std::getenv("TANREN_WRITE_DOCS") != nullptr) write_file(page, config_markdown());
  EXPECT_EQ(read_file(page), config_markdown()) << "run TANREN_WRITE_DOCS=1 tanren_config_test";
}

// TANREN_WRITE_DOCS=1 writes the table instead.
TEST(Help, the_table_of_what_may_change_is_the_generators) {
  const std::string page = TANREN_SOURCE_DIR "/docs/resume.md";
  const std::string before = "| Keys | A run that resumes | A fork |\n";
  std::string text = read_file(page);
  const size_t begin = text.find(before), end = text.find("\n\n", begin);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string table = changes_markdown();
  if (std::getenv("TANREN_WRITE_DOCS") != nullptr) {
    write_file(page, text.replace(begin, end + 1 - begin, table));
  } else {
    EXPECT_EQ(text.substr(begin, end + 1 - begin), table)
        << "run TANREN_WRITE_DOCS=1 tanren_config_test";
  }
}

}  // namespace
}  // namespace tanren
