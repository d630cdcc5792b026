#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/post_training/quantize_remarks.h"
#include "tanren/post_training/report_plot.h"
#include "tanren/post_training/report_tables.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

namespace tanren {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

SchemeResult scheme(const std::string& name, double metric, int64_t mebibytes, double seconds) {
  SchemeResult result;
  result.name = name;
  result.metric = metric;
  result.tensor_bytes = mebibytes << 20;
  result.seconds_1 = Spread{seconds / 4, seconds / 5, seconds / 3};
  result.seconds_8 = Spread{seconds, seconds * 0.9, seconds * 1.1};
  result.ratio_1 = result.ratio_8 = Spread{seconds, seconds - 0.05, seconds + 0.05};  // fp32: 1 s
  result.peak_bytes = mebibytes << 21;
  result.is_within_tolerance = true;
  return result;
}

// fp32 takes 1 s for 8 samples, bf16 0.6, weights 0.8, dynamic 0.4; static does not apply.
QuantizeReport quantized_digits() {
  QuantizeReport report;
  report.model = "runs/digits";
  report.data = "digits.csv";
  report.metric = "accuracy";
  report.goal = "max";
  report.tolerance = 0.5;
  report.tolerance_unit = "points";
  report.calibration_samples = 256;
  report.evaluated_samples = 1797;
  report.processor = "8 cores";
  report.kernels = "VNNI";
  report.schemes = {scheme("fp32", 0.97, 400, 1), scheme("bf16", 0.97, 200, 0.6),
                    scheme("weights", 0.969, 100, 0.8), scheme("dynamic", 0.968, 101, 0.4)};
  report.schemes[0].ratio_1 = report.schemes[0].ratio_8 = Spread{1, 1, 1};
  report.schemes[1].difference = Difference{0.0005, -0.0010, 0.0020};
  report.schemes[2].difference = Difference{-0.0010, -0.0030, 0.0010};
  report.schemes[3].difference = Difference{-0.0020, -0.0045, 0.0005};
  report.schemes[3].is_written = true;
  report.schemes[3].layers_kept = 3;
  report.schemes.push_back({.name = "static", .not_measured = "the recurrent layer has no range"});
  report.layers = {
      {"stem.weight",
       "convolution",
       {16, 1, 3, 3},
       std::pair(-2.5, 7.25),
       1e-4,
       0.25,
       true,
       "within the tolerance"},
      {"body.weight", "linear", {64, 1024}, std::nullopt, 1e-2, 0.5, false, "worst first"},
      {"position", "", {64}, std::nullopt, std::nullopt, 0.125, false, "narrow reads it"}};
  report.written = "dynamic";
  report.file = "runs/digits/quantized/model.tanren.safetensors";
  report.remarks = {"bf16 is faster than weights at batch 8: 0.75 of its time"};
  return report;
}

int64_t widest_line(const std::string& text) {
  std::istringstream lines(text);
  int64_t width = 0;
  for (std::string line; std::getline(lines, line);) width = std::max(width, display_width(line));
  return width;
}

TEST(QuantizeReport, numbers_that_are_not_finite_or_not_known_are_a_dash_and_null) {
  QuantizeReport report = quantized_digits();
  SchemeResult& dynamic = report.schemes[3];
  dynamic.metric = kNotANumber;
  dynamic.difference = Difference{kNotANumber, -kInfinite, kInfinite};
  dynamic.seconds_8 = Spread{kInfinite, kNotANumber, kNotANumber};
  dynamic.ratio_8.reset();
  dynamic.peak_bytes = 0;
  report.layers[0].error = kNotANumber;
  report.layers[0].input_range = std::pair(-kInfinite, kNotANumber);
  report.layers[0].share = kNotANumber;
  for (const std::string& text : {quantize_text_report(report), quantize_html_report(report)}) {
    for (const char* wrong : {"nan", "NaN", "inf "}) {
      EXPECT_FALSE(testing::contains(text, wrong)) << wrong << " in " << text;
    }
  }
  const std::vector<std::string> row{"dynamic", "-", "-", "-",      "101 MiB",
                                     "0.253",   "-", "3", "written"};
  EXPECT_EQ(scheme_table(report).rows[3], row);
  const std::vector<std::string> timed{"dynamic", "8", "-", "-", "-", "-", "-", "-", "-"};
  EXPECT_EQ(time_table(report).rows.back(), timed);
  const auto json = nlohmann::json::parse(quantize_json_report(report));
  const auto& measured = json["schemes"][3];
  EXPECT_TRUE(measured["metric"].is_null());
  EXPECT_TRUE(measured["difference"]["lower"].is_null());
  EXPECT_TRUE(measured["seconds_8"]["median"].is_null());
  EXPECT_TRUE(measured["ratio_8"].is_null());
  EXPECT_TRUE(measured["peak_bytes"].is_null());
  EXPECT_TRUE(json["layers"][0]["error"].is_null());
  EXPECT_TRUE(json["layers"][0]["input_range"][0].is_null());
}

TEST(QuantizeReport, an_empty_report_has_all_three_texts) {
  const QuantizeReport report;
  TANREN_EXPECT_CONTAINS(quantize_text_report(report), "nothing is written");
  EXPECT_EQ(quantize_html_report(report).find("<svg"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(quantize_json_report(report))["file"].is_null());
}

TEST(QuantizeReport, the_text_says_what_was_measured_decided_and_left_out) {
  const std::string text = quantize_text_report(quantized_digits());
  for (const char* part :
       {"runs/digits on digits.csv: 1,797 samples evaluated, 256 for calibration",
        "accuracy, the higher the better; tolerance: 0.5 points", "8 cores; 8-bit products: VNNI",
        "written: dynamic, runs/digits/quantized/model.tanren.safetensors", "−0.45 … +0.05",
        "static is left out: the recurrent layer has no range", "64×1024", "−2.5 … 7.25",
        "bf16 is faster than weights at batch 8: 0.75 of its time", "stays (worst first): body",
        "1 of 3 weights are in 8 bits, with 25.0 % of the model's bytes in fp32."}) {
    TANREN_EXPECT_CONTAINS(text, part);
  }
  EXPECT_LE(widest_line(text), 100) << text;
}

TEST(QuantizeReport, says_of_each_scheme_why_nothing_is_written) {
  QuantizeReport report = quantized_digits();
  report.written = report.file = "";
  report.layers.clear();
  report.schemes[2].is_within_tolerance = false;  // weights
  report.schemes[3].is_written = false;           // dynamic, as large as fp32
  report.schemes[3].tensor_bytes = report.schemes[0].tensor_bytes;
  TANREN_EXPECT_CONTAINS(quantize_text_report(report),
                         "nothing is written; beyond the tolerance: weights; no smaller than fp32: "
                         "dynamic; left out: static\n");
  report.schemes[4].not_measured =
      kRefused + std::string("[quantize] the input of a is not finite");
  report.schemes[2].not_measured = "no weight is left";
  const std::string text = quantize_text_report(report);
  TANREN_EXPECT_CONTAINS(text,
                         "nothing is written; no smaller than fp32: dynamic; left out: weights; "
                         "refused: static");
  TANREN_EXPECT_CONTAINS(text, "static is refused: [quantize] the input of a is not finite");
  EXPECT_EQ(scheme_table(report).rows[4].back(), "refused");
  EXPECT_FALSE(testing::contains(text, "beyond the tolerance"));
}

TEST(QuantizeReport, tells_the_bytes_of_a_small_model) {
  QuantizeReport report = quantized_digits();
  report.schemes[0].tensor_bytes = 79'728;
  EXPECT_EQ(scheme_table(report).rows[0][4], "78 KiB");
}

TEST(QuantizeReport, notes_of_tables_tell_what_was_measured) {
  QuantizeReport report = quantized_digits();
  TANREN_EXPECT_CONTAINS(scheme_table(report).note, "paired by sample");
  TANREN_EXPECT_CONTAINS(scheme_table(report).note, "peak: while 8 samples");
  TANREN_EXPECT_CONTAINS(time_table(report).note, "of bf16's");
  for (SchemeResult& one : report.schemes) {
    one.difference.reset();
    one.peak_bytes = 0;
  }
  report.schemes[1].not_measured = "this processor has no products in bf16";
  EXPECT_FALSE(testing::contains(scheme_table(report).note, "paired by sample"));
  EXPECT_FALSE(testing::contains(scheme_table(report).note, "peak: while"));
  EXPECT_FALSE(testing::contains(time_table(report).note, "of bf16's"));
}

TEST(QuantizeReport, remarks_are_told_where_they_are_true) {
  const auto told = [](const QuantizeReport& report, const RemarkFacts& facts) {
    std::string text;
    for (const std::string& remark : remarks_of(report, facts)) text += remark + "\n";
    return text;
  };
  QuantizeReport report = quantized_digits();
  report.remarks.clear();
  report.schemes[3].ratio_8 = Spread{1.5, 1.4, 1.6};
  EXPECT_EQ(told(report, {.error_samples = 64}),
            "layers went back to fp32 by the accuracy of the calibration samples\n"
            "errors of layers are of the first 64 calibration samples\n");
  report.schemes[3].layers_kept = 0;
  EXPECT_EQ(told(report, {.error_samples = 256}), "");
  const RemarkFacts slow{.error_samples = 256, .has_8_bit_products = false, .has_vnni = false};
  EXPECT_EQ(told(report, slow),
            "this processor lacks AVX512-VNNI, and without it dynamic is slower than fp32 for 8 "
            "samples\n");
  report.schemes[3].ratio_8 = Spread{0.5, 0.4, 0.6};
  report.schemes[2].ratio_8 = Spread{1.5, 1.4, 1.6};  // weights, which has no products of bytes
  EXPECT_EQ(told(report, slow), "");
  const RemarkFacts others{.has_metric = false,
                           .error_samples = 256,
                           .computes_in_bf16 = true,
                           .constant = {"head.weight"},
                           .nan = {{"fp32", 0}, {"static", 3}}};
  const std::string text = told(report, others);
  TANREN_EXPECT_CONTAINS(text, "the accuracy has no value over the calibration samples");
  TANREN_EXPECT_CONTAINS(text, "what is not 8-bit computes in bf16");
  TANREN_EXPECT_CONTAINS(text, "head.weight has read one number alone");
  TANREN_EXPECT_CONTAINS(text, "static answers 3 of the 1797 evaluated samples with NaN");
  EXPECT_FALSE(testing::contains(text, "fp32 answers"));
  for (SchemeResult& one : report.schemes) {
    if (one.name != "fp32" && one.name != "bf16") one.not_measured = "it does not apply";
  }
  EXPECT_FALSE(testing::contains(told(report, others), "what is not 8-bit"));
}

TEST(QuantizeReport, long_names_of_layers_lose_their_middle_so_that_lines_keep_100_columns) {
  QuantizeReport report = quantized_digits();
  const std::string name = "bert.encoder.layer.11." + std::string(90, 'x') + ".query.weight";
  report.layers[0].name = name;
  report.remarks.emplace_back();
  for (int i = 0; i < 40; ++i) report.remarks.back() += "word ";
  const std::string text = quantize_text_report(report);
  TANREN_EXPECT_CONTAINS(text, "bert.encoder.layer.11.");
  TANREN_EXPECT_CONTAINS(text, ".query.weight");
  EXPECT_LE(widest_line(text), 100) << text;
  TANREN_EXPECT_CONTAINS(quantize_html_report(report), name);
  EXPECT_EQ(nlohmann::json::parse(quantize_json_report(report))["layers"][0]["name"], name);
}

TEST(QuantizeReport, the_text_lists_the_largest_errors_first_and_says_how_many_there_are) {
  const Table table = worst_layer_table(quantized_digits(), 2);
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.rows[0][0], "body.weight");
  EXPECT_EQ(table.rows[1][0], "stem.weight");
  TANREN_EXPECT_CONTAINS(table.note, "The 2 with the largest errors of 3; quantize.json has all.");
  TANREN_EXPECT_CONTAINS(table.note, "stays (narrow reads it): position");
}

TEST(QuantizeReport, a_change_is_in_points_or_in_per_cent_of_the_loss_of_fp32) {
  QuantizeReport report = quantized_digits();
  auto change = metric_change(report, report.schemes[3]);
  ASSERT_TRUE(change && change->interval);
  EXPECT_NEAR(change->mean, -0.2, 1e-12);
  EXPECT_NEAR(change->interval->first, -0.45, 1e-12);
  report.tolerance_unit = "per cent";
  report.goal = "min";
  report.schemes[0].metric = 0.5;
  change = metric_change(report, report.schemes[3]);
  ASSERT_TRUE(change && change->interval);
  EXPECT_NEAR(change->mean, -0.4, 1e-12);  // -0.002 of 0.5
  EXPECT_NEAR(change->interval->second, 0.1, 1e-12);
  report.schemes[0].metric = 0;
  EXPECT_FALSE(metric_change(report, report.schemes[3]));
  EXPECT_FALSE(metric_change(report, report.schemes[0])) << "fp32 itself";
  EXPECT_FALSE(metric_change(report, report.schemes[4])) << "not measured";
}

TEST(QuantizeReport, a_metric_that_no_sample_has_alone_changes_without_an_interval) {
  QuantizeReport report = quantized_digits();
  report.schemes[3].difference.reset();
  const auto change = metric_change(report, report.schemes[3]);
  ASSERT_TRUE(change);
  EXPECT_NEAR(change->mean, -0.2, 1e-12);  // 0.968 - 0.970
  EXPECT_FALSE(change->interval);
  EXPECT_EQ(scheme_table(report).rows[3][3], "-");
}

TEST(QuantizeReport, the_table_of_times_says_where_bf16_is_faster) {
  const Table table = time_table(quantized_digits());
  ASSERT_EQ(table.rows.size(), 8U) << "four schemes, two batches";
  const std::vector<std::string> weights{"weights", "8",    "800 ms", "720 ms", "880 ms",
                                         "0.80",    "0.75", "0.85",   "1.33"};
  EXPECT_EQ(table.rows[5], weights);
  EXPECT_EQ(table.rows[7].back(), "0.67");
  TANREN_EXPECT_CONTAINS(table.note, "bf16 is faster than weights at batch 1, weights at batch 8.");
  QuantizeReport report = quantized_digits();
  report.schemes[2].seconds_1 = report.schemes[2].seconds_8 = Spread{0.1, 0.1, 0.1};
  EXPECT_EQ(time_table(report).note.find("bf16 is faster"), std::string::npos);
}

TEST(QuantizeReport, the_frontier_has_what_no_other_scheme_equals_or_beats) {
  const auto names = [](const std::vector<PlotPoint>& points) {
    std::string text;
    for (const PlotPoint& point : points) text += point.name + " ";
    return text;
  };
  const std::vector<PlotPoint> points{{"dear", 9, 0.5}, {"good", 8, 1},   {"same", 8, 1},
                                      {"cheap", 1, -2}, {"worse", 2, -3}, {"middle", 3, 0}};
  EXPECT_EQ(names(pareto_frontier(points, true)), "cheap middle good ");
  EXPECT_EQ(names(pareto_frontier(points, false)), "cheap worse ");
  EXPECT_EQ(names(pareto_frontier({}, true)), "");
}

TEST(QuantizeReport, the_picture_has_a_labelled_point_for_each_scheme_and_its_interval) {
  QuantizeReport report = quantized_digits();
  const auto count = [](const std::string& text, const std::string& part) {
    size_t number = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
      ++number;
    }
    return number;
  };
  std::string svg = pareto_plot(report);
  EXPECT_EQ(count(svg, "<circle"), 4U);
  EXPECT_EQ(count(svg, "class=\"interval\""), 3U);
  EXPECT_EQ(count(svg, "r=\"5\" fill=\"#000\""), 1U) << "the one that is written";
  EXPECT_EQ(count(svg, "id=\"frontier\""), 1U);
  EXPECT_EQ(count(svg, "id=\"tolerance\""), 1U);
  for (const char* part : {">dynamic, 101 MiB</text>", ">fp32, 400 MiB</text>",
                           "time of a prediction of 8 samples, s", "higher is better"}) {
    TANREN_EXPECT_CONTAINS(svg, part);
  }
  // 0 to 1.06 s over 800 units from 66: dynamic's 0.4 s.
  TANREN_EXPECT_CONTAINS(svg, "<circle cx=\"367.9\"");
  for (SchemeResult& one : report.schemes) one.seconds_8.reset();
  svg = pareto_plot(report);
  EXPECT_EQ(count(svg, "<circle"), 4U);
  TANREN_EXPECT_CONTAINS(svg, "bytes of the tensors, MiB");
  TANREN_EXPECT_CONTAINS(svg, ">dynamic</text>");
}

TEST(QuantizeReport, points_of_one_place_have_names_below_each_other) {
  QuantizeReport report = quantized_digits();
  for (SchemeResult& one : report.schemes) {
    one.seconds_8 = Spread{1e-3, 1e-3, 1e-3};
    one.difference = Difference{};
  }
  const std::string svg = pareto_plot(report);
  std::vector<double> heights;
  for (const char* name : {"fp32", "bf16", "weights", "dynamic"}) {
    const size_t end = svg.find(std::string(">") + name + ", ");
    ASSERT_NE(end, std::string::npos) << svg;
    const std::string begin = "\" y=\"";
    heights.push_back(std::stod(svg.substr(svg.rfind(begin, end) + begin.size())));
  }
  for (size_t i = 1; i < heights.size(); ++i) EXPECT_NEAR(heights[i], heights[i - 1] + 13, 0.11);
}

TEST(QuantizeReport, bars_of_errors_are_on_a_scale_of_decades) {
  QuantizeReport report = quantized_digits();
  report.layers[0].error = 2e-3;
  report.layers[1].error = 2e-1;
  const Table table = layer_table(report);
  ASSERT_EQ(table.bars.size(), 3U);
  EXPECT_NEAR(table.bars[0], 0.30103 / 2.30103, 1e-4);  // log10 of 2 above 1e-3
  EXPECT_NEAR(table.bars[1], 1, 1e-12);
  EXPECT_EQ(table.bars[2], 0) << "its error is not known";
  TANREN_EXPECT_CONTAINS(html_of(table), "<rect width=\"100.0\"");
}

TEST(QuantizeReport, the_page_loads_nothing_and_escapes_names) {
  QuantizeReport report = quantized_digits();
  const std::string bad = "</p><b>&\"c\"\n\x1b[2J";
  report.model = report.data = report.metric = report.processor = report.kernels = bad;
  report.tolerance_unit = report.file = report.written = bad;
  report.remarks = {bad};
  for (SchemeResult& one : report.schemes) one.name += bad;
  report.schemes[4].not_measured = bad;
  for (LayerResult& layer : report.layers) layer.name = layer.reader = layer.why = bad;
  const std::string page = quantize_html_report(report), text = quantize_text_report(report);
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url(", "<link"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  TANREN_EXPECT_CONTAINS(page, "&lt;/p&gt;&lt;b&gt;&amp;&quot;c&quot;");
  for (const std::string& one : {page, text}) EXPECT_EQ(one.find('\x1b'), std::string::npos);
}

TEST(QuantizeReport, the_json_has_every_number_in_full_and_its_keys_in_one_order) {
  QuantizeReport report = quantized_digits();
  report.schemes[3].metric = 1.0 / 3;
  const std::string text = quantize_json_report(report);
  EXPECT_EQ(text, quantize_json_report(report));
  const auto json = nlohmann::ordered_json::parse(text);
  EXPECT_EQ(json["schemes"][3]["metric"].get<double>(), 1.0 / 3);
  EXPECT_EQ(json["schemes"][3]["difference"]["upper"].get<double>(), 0.0005);
  EXPECT_EQ(json["schemes"][4]["not_measured"], "the recurrent layer has no range");
  EXPECT_TRUE(json["schemes"][4]["metric"].is_null());
  EXPECT_TRUE(json["schemes"][0]["difference"].is_null());
  EXPECT_EQ(json["layers"][0]["input_range"][1].get<double>(), 7.25);
  EXPECT_EQ(json["layers"][1]["shape"][1], 1024);
  EXPECT_TRUE(json["layers"][2]["reader"].is_null());
  std::string keys, first_keys, last_keys;
  for (const auto& [key, value] : json.items()) keys += key + " ";
  for (const auto& [key, value] : json["schemes"].front().items()) first_keys += key + " ";
  for (const auto& [key, value] : json["schemes"].back().items()) last_keys += key + " ";
  EXPECT_EQ(keys,
            "model data metric goal tolerance tolerance_unit calibration_samples evaluated_samples "
            "processor kernels written file schemes layers remarks ");
  EXPECT_EQ(first_keys, last_keys) << "of one that was measured and one that was not";
}

}  // namespace
}  // namespace tanren
