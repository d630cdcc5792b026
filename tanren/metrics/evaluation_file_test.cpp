#include "tanren/metrics/evaluation_file.h"

#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string>

namespace tanren {
namespace {

EvaluationReport class_report(int64_t step) {
  EvaluationReport report{.step = step, .samples = 3, .values = {{"loss", 0.5}, {"auroc", 0.75}}};
  report.classes = {{.targets = 2, .predictions = 1, .precision = 1, .recall = 0.5, .f1 = 2.0 / 3},
                    {.targets = 1, .predictions = 2, .precision = 0.5, .recall = 1, .f1 = 2.0 / 3}};
  report.classes[0].auroc = std::nan("");
  report.classes[1].auroc = 0.75;
  report.confusion_matrix = {1, 1, 0, 1};
  report.auroc_error = 0.001;
  return report;
}

TEST(EvaluationFile, that_cannot_be_written_is_told_once_and_nothing_is_thrown) {
  const testing::TemporaryFolder folder;
  std::string told;
  const auto before =
      set_log_sink([&](std::string_view line) { told += std::string(line) + "\n"; });
  const auto sink = make_evaluation_file_sink(folder.path() / "absent" / "evaluation.json", 0);
  EXPECT_NO_THROW(sink->evaluation(class_report(1)));
  EXPECT_NO_THROW(sink->evaluation(class_report(2)));
  set_log_sink(before);
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  TANREN_EXPECT_CONTAINS(told, "the run goes on");
}

TEST(EvaluationFile, is_json_with_a_class_a_line_and_null_for_what_is_not_finite) {
  const auto text = evaluation_json(class_report(7));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["step"], 7);
  EXPECT_EQ(json["values"]["auroc"], 0.75);
  EXPECT_EQ(json["auroc_error"], 0.001);
  ASSERT_EQ(json["classes"].size(), 2u);
  EXPECT_EQ(json["classes"][1]["class"], 1);
  EXPECT_EQ(json["classes"][1]["recall"], 1);
  EXPECT_TRUE(json["classes"][0]["auroc"].is_null());
  EXPECT_EQ(json["confusion_matrix"], nlohmann::json::parse("[[1,1],[0,1]]"));
  EXPECT_TRUE(nlohmann::json::accept(evaluation_json(EvaluationReport{})));
}

TEST(EvaluationFile, holds_the_newest_evaluation_of_classes_and_none_of_lost_steps) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "evaluation.json";
  {
    const auto sink = make_evaluation_file_sink(file, 0);
    sink->evaluation({.step = 1, .samples = 3, .values = {{"loss", 1}}});
    EXPECT_FALSE(std::filesystem::exists(file));
    sink->evaluation(class_report(4));
    sink->evaluation(class_report(8));
  }
  EXPECT_EQ(nlohmann::json::parse(read_file(file))["step"], 8);
  make_evaluation_file_sink(file, 8);
  EXPECT_TRUE(std::filesystem::exists(file));
  make_evaluation_file_sink(file, 7);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(EvaluationFile, names_classes_in_json_and_shows_their_scores) {
  const auto report = class_report(1);
  const auto json = nlohmann::json::parse(evaluation_json(report, {"cat", "dog"}));
  EXPECT_EQ(json["classes"][1]["name"], "dog");
  EXPECT_FALSE(nlohmann::json::parse(evaluation_json(report))["classes"][0].contains("name"));
  const std::string table = classes_markdown(report, {"cat", "d|g"});
  for (const char* part : {"| class |", "recall", "auroc", "cat", "d\\|g"}) {
    TANREN_EXPECT_CONTAINS(table, part);
  }
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 4);
  EXPECT_EQ(classes_markdown(EvaluationReport{}), "");
}

TEST(EvaluationFile, shows_the_matrix_as_a_table_unless_it_is_too_wide_to_read) {
  auto report = class_report(1);
  report.confusion_matrix = {1, 12, 0, 1};
  EXPECT_EQ(confusion_markdown(report),
            "| target \\ prediction |  0 |  1 |\n"
            "|--------------------:|---:|---:|\n"
            "|                   0 |  1 | 12 |\n"
            "|                   1 |  0 |  1 |\n");
  EXPECT_EQ(confusion_markdown(report, {"cat", "Löwe"}),
            "| target \\ prediction |  cat | Löwe |\n"
            "|--------------------:|-----:|-----:|\n"
            "|                 cat |    1 |   12 |\n"
            "|                Löwe |    0 |    1 |\n");
  EXPECT_EQ(confusion_markdown(EvaluationReport{}), "");
  EvaluationReport wide;
  wide.classes.resize(51);
  wide.confusion_matrix.resize(51 * 51);
  TANREN_EXPECT_CONTAINS(confusion_markdown(wide), "evaluation.json");
}

}  // namespace
}  // namespace tanren
