#include "tanren/metrics/json_line.h"

#include "tanren/base/testing.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace tanren {
namespace {

StepReport line_report() {
  StepReport report;
  report.attempt = 12;
  report.step = 11;
  report.epoch = 1;
  report.samples = 32;
  report.microsteps = 2;
  ObjectiveReport objective;
  objective.name = "loss";
  objective.step = 11;
  objective.loss = 0.1;
  objective.terms = {{"cross_entropy", 0.1}, {"l1", 1e-20}};
  objective.grad_norm = 1.0 / 3;
  objective.learning_rate = 0.001;
  objective.loss_scale = 65536;
  report.objectives = {objective};
  report.seconds = 0.25;
  report.wait_seconds = 0.01;
  report.memory_bytes = 1 << 20;
  return report;
}

TEST(JsonLine, turns_nan_and_infinity_into_null_and_names_the_cause) {
  auto report = line_report();
  report.objectives[0].loss = std::nan("");
  report.objectives[0].grad_norm = -std::numeric_limits<double>::infinity();
  report.objectives[0].verdict = {Action::skip, Cause::nan_loss};
  const auto json = nlohmann::json::parse(json_line(report));
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_TRUE(json.at("grad_norm").is_null());
  EXPECT_EQ(json.at("verdict"), "skip");
  EXPECT_EQ(json.at("cause"), "non-finite loss");
}

TEST(JsonLine, escapes_what_json_does_not_allow_in_a_text) {
  auto report = line_report();
  report.culprit = "a \"quoted\" \\ name\n\x01 é";
  const auto line = json_line(report);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(line).at("culprit"), report.culprit);
}

// Issue 22: a class folder may have any bytes as its name.
TEST(JsonLine, replaces_bytes_that_are_no_utf_8) {
  auto report = line_report();
  report.culprit = "caf\xe9 \xc3\xa9 \xed\xa0\x80 \xf0\x9f";
  EXPECT_EQ(nlohmann::json::parse(json_line(report)).at("culprit"),
            "caf\xef\xbf\xbd é \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd");
}

TEST(JsonLine, has_the_documented_keys_in_order_and_timing_last) {
  EXPECT_EQ(json_line(line_report()),
            R"({"attempt":12,"step":11,"epoch":1,"samples":32,"microsteps":2,"loss":0.1,)"
            R"("terms":{"cross_entropy":0.1,"l1":1e-20},"grad_norm":0.3333333333333333,)"
            R"("learning_rate":0.001,"loss_scale":65536,"verdict":"apply","cause":"none",)"
            R"("timing":{"seconds":0.25,"wait_seconds":0.01,"samples_per_second":128,)"
            R"("memory_bytes":1048576}})");
}

TEST(JsonLine, has_what_stood_out_of_a_spike) {
  auto report = line_report();
  report.objectives[0].verdict.cause = Cause::spike;
  report.objectives[0].spike = Spike{"loss", 5, 0.5, 9};
  const auto json = nlohmann::json::parse(json_line(report));
  EXPECT_EQ(json.at("cause"), "spike");
  EXPECT_EQ(json.at("spike"),
            nlohmann::json({{"what", "loss"}, {"value", 5}, {"mean", 0.5}, {"z", 9}}));
}

TEST(JsonLine, differs_only_in_timing_between_two_equal_runs) {
  auto first = line_report();
  auto second = first;
  second.seconds = 9;
  second.wait_seconds = 8;
  second.memory_bytes = 7;
  const auto repeatable = [](const std::string& line) {
    return line.substr(0, line.find(",\"timing\":{"));
  };
  EXPECT_NE(json_line(first), json_line(second));
  EXPECT_EQ(repeatable(json_line(first)), repeatable(json_line(second)));
  second.objectives[0].loss = std::nextafter(0.1, 1.0);
  EXPECT_NE(repeatable(json_line(first)), repeatable(json_line(second)));
}

TEST(JsonLine, numbers_read_back_to_the_same_double) {
  for (const double value :
       {1.0 / 3, 1e-310, 5e-324, 1.7976931348623157e308, -0.0, 65536.0, 1e22}) {
    std::string text;
    append_json(text, value);
    ASSERT_TRUE(nlohmann::json::accept(text)) << text;
    const double back = std::strtod(text.c_str(), nullptr);
    EXPECT_EQ(back, value) << text;
    EXPECT_EQ(std::signbit(back), std::signbit(value)) << text;
  }
}

TEST(JsonLine, lists_every_objective_where_there_are_several) {
  auto report = line_report();
  auto other = report.objectives[0];
  other.name = "discriminator";
  other.step = 7;
  other.loss = 0.5;
  other.flush_share = 0.25;
  report.objectives.push_back(other);
  report.several = true;
  const auto json = nlohmann::json::parse(json_line(report));
  EXPECT_EQ(json.at("loss"), 0.1);
  ASSERT_EQ(json.at("objectives").size(), 2u);
  EXPECT_EQ(json["objectives"][1]["name"], "discriminator");
  EXPECT_EQ(json["objectives"][1]["step"], 7);
  EXPECT_EQ(json["objectives"][1]["flush_share"], 0.25);
  EXPECT_FALSE(json["objectives"][0].contains("flush_share"));
}

TEST(JsonLine, tells_an_evaluation) {
  EvaluationReport report{.step = 40, .samples = 360, .values = {{"loss", 0.5}, {"top3", 1}}};
  report.seconds = 2;
  EXPECT_EQ(json_line(report), R"({"evaluation":{"loss":0.5,"top3":1},"step":40,"samples":360,)"
                               R"("timing":{"seconds":2,"samples_per_second":180}})");
  report.tokens = 720;
  report.auroc_error = 0;
  report.classes.resize(2);
  report.confusion_matrix = {1, 2, 3, 4};
  EXPECT_TRUE(testing::contains(json_line(report),
                                R"("samples":360,"tokens":720,"auroc_error":0,)"
                                R"("confusion_matrix":[[1,2],[3,4]],"timing":{)"));
}

TEST(JsonLine, counts_tokens_where_the_data_has_them_and_their_rate_with_the_times) {
  auto report = line_report();
  report.tokens = 4096;
  const auto json = nlohmann::json::parse(json_line(report));
  EXPECT_EQ(json.at("tokens"), 4096);
  EXPECT_EQ(json.at("timing").at("tokens_per_second"), 4096 / 0.25);
  EXPECT_FALSE(nlohmann::json::parse(json_line(line_report())).contains("tokens"));
  report.seconds = 0;  // without time there is no rate
  EXPECT_FALSE(nlohmann::json::parse(json_line(report))["timing"].contains("samples_per_second"));
}

}  // namespace
}  // namespace tanren
