#include "tanren/anatomy/report.h"

#include "tanren/base/testing.h"
#include "tanren/page/units.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace tanren {
namespace {

// Two steps were recorded.
Anatomy small() {
  Anatomy anatomy;
  anatomy.subject = {"digits", "mlp", "cpu", "fp32", "adamw", 2, 1000, 1000, 8, 4, 0, 2};
  anatomy.times = {0.5, 1.0, 2.0, 0.5};
  anatomy.listening_seconds = 4.1;
  anatomy.machine = {1e9, 2e9, "Float", 64, 1 << 20};
  anatomy.operators.times = {2, 2.0, 4.0, 1.0};
  anatomy.operators.operators = {
      {"aten::addmm", OperatorClass::contractions, Pass::forward, 4, 1.6, 800'000'000, 16'000'000},
      {"aten::mm", OperatorClass::contractions, Pass::backward, 8, 3.2, 1'600'000'000, 32'000'000},
      {"aten::gelu", OperatorClass::element_wise, Pass::forward, 4, 0.2, 1000, 8000}};
  anatomy.operators.nodes = {{"AddmmBackward0", 4, 3.4}};
  anatomy.operators.blocks = {{"layer.0", 1.8, 3.2, 800'001'000, 1'600'000'000}};
  anatomy.classes = class_rows(anatomy.operators, anatomy.times, {12'000, 40'000});
  anatomy.stages = {{"before anything", 0, 0}, {"after training", 3 << 20, 300 << 20}};
  anatomy.memory.owners = {{MemoryKind::weights, "", {4000, 4000}, 4000},
                           {MemoryKind::activations, "layer.0", {0, 6000}, 6000}};
  anatomy.memory.total = {4000, 10000};
  anatomy.memory.passes = {{0, Pass::forward}, {1, Pass::backward}};
  anatomy.memory.peak_moment = 1;
  anatomy.memory.peak_bytes = 10000;
  anatomy.memory.at_peak[static_cast<size_t>(MemoryKind::weights)] = 4000;
  anatomy.memory.at_peak[static_cast<size_t>(MemoryKind::activations)] = 6000;
  anatomy.memory.as_tagged = anatomy.memory.at_peak;
  return anatomy;
}

const ClassRow& row(const Anatomy& anatomy, OperatorClass of) {
  return anatomy.classes.at(static_cast<size_t>(of));
}

TEST(ReportTest, nothing_recorded_gives_no_share_and_no_rate) {
  const auto rows = class_rows({}, {}, {});
  for (const ClassRow& one : rows) {
    EXPECT_EQ(one.share, 0);
    EXPECT_EQ(one.flops_share, 0);
    EXPECT_EQ(one.flops_per_byte(), 0);
    EXPECT_EQ(one.flops_per_second(), 0);
  }
}

TEST(ReportTest, classes_sum_to_the_step_and_what_no_operator_covers_is_idle) {
  const Anatomy anatomy = small();
  EXPECT_DOUBLE_EQ(row(anatomy, OperatorClass::contractions).seconds, 2.4);
  EXPECT_EQ(row(anatomy, OperatorClass::contractions).flops, 1'200'000'000);
  EXPECT_DOUBLE_EQ(row(anatomy, OperatorClass::element_wise).seconds, 0.1);
  EXPECT_DOUBLE_EQ(row(anatomy, OperatorClass::optimizer).seconds, 0.5);
  EXPECT_DOUBLE_EQ(row(anatomy, OperatorClass::loader).seconds, 0.5);
  EXPECT_NEAR(row(anatomy, OperatorClass::idle).seconds, 0.5, 1e-12);
  double seconds = 0, share = 0;
  for (const ClassRow& one : anatomy.classes) {
    seconds += one.seconds;
    share += one.share;
  }
  EXPECT_NEAR(seconds, anatomy.times.total(), 1e-12);
  EXPECT_NEAR(share, 1, 1e-12);
}

TEST(ReportTest, operators_that_took_longer_while_heard_are_scaled_to_the_step) {
  Anatomy anatomy = small();
  anatomy.times.forward = 0.5;  // with backward 1.25, and the operators took 2.5
  anatomy.times.backward = 0.75;
  double seconds = 0;
  for (const ClassRow& one : class_rows(anatomy.operators, anatomy.times, {})) {
    seconds += one.seconds;
    EXPECT_GE(one.seconds, 0);
  }
  EXPECT_NEAR(seconds, anatomy.times.total(), 1e-12);
}

TEST(ReportTest, says_that_a_graphs_forward_holds_its_backward) {
  Anatomy anatomy = small();
  const char* const words = "with the backward of the model's graph";
  EXPECT_EQ(anatomy_text(anatomy).find(words), std::string::npos);
  anatomy.subject.is_graph = true;
  TANREN_EXPECT_CONTAINS(anatomy_text(anatomy), words);
}

TEST(ReportTest, the_text_fits_100_columns_and_has_every_part) {
  const Anatomy anatomy = small();
  const std::string text = anatomy_text(anatomy);
  for (const char* part : {"digits: mlp, 1,000 parameters", "2.00 × forward", "tensor contractions",
                           "addmm", "AddmmBackward0", "layer.0", "after training", "activations",
                           "bytes/parameter", "not predicted"}) {
    TANREN_EXPECT_CONTAINS(text, part);
  }
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto width =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(width, 100) << line;
  }
}

TEST(ReportTest, what_the_allocator_keeps_and_a_context_stand_beside_the_tensors) {
  Anatomy anatomy = small();
  anatomy.stages.back().cached = 40 << 20;
  TANREN_EXPECT_CONTAINS(anatomy_text(anatomy), "40.0 MiB  300.0 MiB");
  EXPECT_EQ(anatomy_text(anatomy).find("in use on the device"), std::string::npos);
  anatomy.subject.device = "cuda:0";
  anatomy.stages.back().context = 257 << 20;
  TANREN_EXPECT_CONTAINS(anatomy_text(anatomy), "40.0 MiB  257.0 MiB");
  const auto stage = nlohmann::json::parse(anatomy_json(anatomy))["memory"]["stages"].back();
  EXPECT_EQ(stage["cached_bytes"], 40 << 20);
  EXPECT_EQ(stage["context_bytes"], 257 << 20);
}

TEST(ReportTest, every_kind_of_memory_has_a_row_a_pattern_and_a_word_in_the_legend) {
  Anatomy anatomy = small();
  anatomy.memory.owners.clear();
  for (size_t i = 0; i < kNumMemoryKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    anatomy.memory.owners.push_back({kind, "", {1000, 1000}, 1000});
    anatomy.memory.at_peak.at(i) = 1000;
  }
  const std::string text = anatomy_text(anatomy), html = anatomy_html(anatomy);
  for (const auto kind : kMemoryKindNames) {
    TANREN_EXPECT_CONTAINS(text, "\n  " + std::string(kind) + " ");
    TANREN_EXPECT_CONTAINS(html, "<pattern id=\"kind-" + std::string(kind) + "\"");
    TANREN_EXPECT_CONTAINS(html, ">" + std::string(kind) + "</text>");
  }
}

TEST(ReportTest, the_roofs_are_those_of_this_machine) {
  // 1.2 GFLOP in 2.4 s is half of 1 GFLOP/s.
  TANREN_EXPECT_CONTAINS(anatomy_text(small()), "0.5 (50 %)");
}

TEST(ReportTest, a_prediction_stands_beside_what_was_measured) {
  Anatomy anatomy = small();
  anatomy.predicted = PredictedMemory{11000, anatomy.memory.as_tagged};
  anatomy.predicted->at_peak[static_cast<size_t>(MemoryKind::weights)] = 5000;
  const std::string text = anatomy_text(anatomy);
  TANREN_EXPECT_CONTAINS(text, "+25.00 %");
  TANREN_EXPECT_CONTAINS(text, "+10.00 %");
  EXPECT_EQ(nlohmann::json::parse(anatomy_json(anatomy))["memory"]["predicted"]["peak_bytes"],
            11000);
}

TEST(ReportTest, a_measured_cut_stands_above_the_plans_with_the_ratio_of_their_slowest_stages) {
  Anatomy anatomy = small();
  anatomy.not_cut = "the run has several objectives";
  TANREN_EXPECT_CONTAINS(anatomy_text(anatomy),
                         "CUTS INTO STAGES\n  none: the run has several objectives\n");
  anatomy.cuts = {{.stages = 4,
                   .cut_at = {"h.1", "h.2", "h.4"},
                   .planned = {"h.2", "h.3", "h.4"},
                   .slowest = 2,
                   .planned_slowest = 2.5}};
  const std::string text = anatomy_text(anatomy);
  TANREN_EXPECT_CONTAINS(text, "seconds       4   2.00 s   1.00  h.1, h.2, h.4");
  TANREN_EXPECT_CONTAINS(text, "plan          4   2.50 s   1.25  h.2, h.3, h.4");
  TANREN_EXPECT_CONTAINS(anatomy_html(anatomy), "h.1, h.2, h.4");
  const auto cut = nlohmann::json::parse(anatomy_json(anatomy))["cuts"][0];
  EXPECT_EQ(cut["cut_at"][2], "h.4");
  EXPECT_EQ(cut["planned_over_measured"], 1.25);
}

TEST(ReportTest, advice_says_what_it_saves_what_it_costs_and_how_that_was_measured) {
  Anatomy anatomy = small();
  EXPECT_EQ(anatomy_text(anatomy).find("ADVICE"), std::string::npos) << "nothing was tried";
  anatomy.tried = {"a", "b (fails)"};
  TANREN_EXPECT_CONTAINS(anatomy_text(anatomy), "nothing that was tried helps");
  anatomy.advice = {{"precision.mode = \"bf16\"", 0.41, 19 << 20, 0.59, 1.0, 81 << 20, 100 << 20,
                     true, true, 3, "other rounding"}};
  const std::string text = anatomy_text(anatomy);
  TANREN_EXPECT_CONTAINS(
      text,
      "precision.mode = \"bf16\": −19.0 MiB, −41 % time (1.00 s → 590 ms a step, "
      "median of 3, taking turns; peak 100.0 MiB → 81.0 MiB, measured); other "
      "rounding");
  TANREN_EXPECT_CONTAINS(text, "tried: a, b (fails)");
  TANREN_EXPECT_CONTAINS(anatomy_html(anatomy), "−41 % time");
  anatomy.advice[0].alternating = anatomy.advice[0].peak_measured = false;
  anatomy.advice[0].time_gain = -0.3;
  TANREN_EXPECT_CONTAINS(anatomy_text(anatomy), "+30 % time");
  TANREN_EXPECT_CONTAINS(anatomy_text(anatomy),
                         "median of 3; peak 100.0 MiB → 81.0 MiB, predicted");
}

TEST(ReportTest, the_json_has_every_number_in_full) {
  const auto json = nlohmann::json::parse(anatomy_json(small()));
  EXPECT_EQ(json["step"]["seconds"], 4.0);
  EXPECT_EQ(json["step"]["backward_over_forward"], 2.0);
  EXPECT_EQ(json["step"]["samples_per_second"], 2.0);
  EXPECT_EQ(json["operations"]["operators"][1]["flops"], 1'600'000'000);
  EXPECT_EQ(json["memory"]["owners"][1]["bytes"][1], 6000);
  EXPECT_EQ(json["memory"]["bytes_per_parameter"], 10.0);
  EXPECT_EQ(json["memory"]["stages"][1]["process_bytes"], 300 << 20);
}

TEST(ReportTest, the_page_loads_nothing_and_escapes_names) {
  Anatomy anatomy = small();
  anatomy.subject.name = "a<b>&\"c\"";
  anatomy.memory.owners[1].block = "</script><b>";
  const std::string page = anatomy_html(anatomy);
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url(\"", "<link"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  TANREN_EXPECT_CONTAINS(page, "<h1>Anatomy of a&lt;b&gt;&amp;&quot;c&quot;</h1>");
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  TANREN_EXPECT_CONTAINS(page, "<svg id=\"memory-plot\"");
}

TEST(ReportTest, the_page_gives_its_script_the_owners_of_each_moment) {
  const std::string page = anatomy_html(small());
  const std::string begin = "id=\"memory-data\">";
  const size_t at = page.find(begin);
  ASSERT_NE(at, std::string::npos);
  const size_t from = at + begin.size();
  const auto data = nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
  EXPECT_EQ(data["owners"][1]["name"], "activations of layer.0");
  EXPECT_EQ(data["owners"][1]["bytes"][1], 6000);
  EXPECT_EQ(data["total"][1], 10000);
}

TEST(ReportTest, without_a_traced_step_the_page_has_no_plot) {
  Anatomy anatomy = small();
  anatomy.memory = {};
  EXPECT_EQ(anatomy_html(anatomy).find("memory-plot\" view"), std::string::npos);
}

TEST(UnitsTest, numbers_are_short_and_signs_are_said) {
  EXPECT_EQ(scaled_text(0), "-");
  EXPECT_EQ(scaled_text(999), "999");
  EXPECT_EQ(scaled_text(1234567), "1.23 M");
  EXPECT_EQ(time_text(0.0123), "12.3 ms");
  EXPECT_EQ(signed_mebibytes(-(3 << 20)), "−3.0 MiB");
  EXPECT_EQ(signed_percent(0.034), "+3 %");
}

}  // namespace
}  // namespace tanren
