#include "tanren/sweep/sweep_page.h"

#include "tanren/base/json_text.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/page/report_page.h"
#include "tanren/sweep/confirmation.h"
#include "tanren/sweep/leaderboard.h"
#include "tanren/sweep/page_trials.h"
#include "tanren/sweep/sweep_plots.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

namespace tanren {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

int64_t times_in(std::string_view text, std::string_view part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// From `begin`, which is there once, to the next `end`.
std::string part_of(const std::string& text, const std::string& begin, const std::string& end) {
  EXPECT_EQ(times_in(text, begin), 1) << begin;
  const size_t from = text.find(begin);
  if (from == std::string::npos) return "";
  return text.substr(from + begin.size(), text.find(end, from) - from - begin.size());
}

nlohmann::json data_in(const std::string& page) {
  return parse_json(part_of(page, "id=\"sweep-data\">", "</script>"));
}

Space mixed_space() {
  return Space(
      {{.key = "optimizer.learning_rate", .low = 1e-4, .high = 0.1, .scale = "log"},
       {.key = "optimizer.kind", .values = {"adamw", "sgd"}},
       {.key = "optimizer.momentum", .low = 0.5, .high = 0.99, .when = "optimizer.kind=sgd"}});
}

// Sixteen trials by asha; every fifth crashes.
Study mixed_study() {
  Study study(mixed_space(), {.sampler = "random",
                              .scheduler = "asha",
                              .trials = 16,
                              .metric = "loss",
                              .seed = 3,
                              .steps = 8,
                              .first_rung = 2,
                              .reduction = 2});
  while (const auto trial = study.ask()) {
    if (trial->id % 5 == 4) {
      study.tell(*trial, TrialOutcome::crashed, "signal 6 (Aborted)", 1);
      continue;
    }
    const double rate = trial->number("optimizer.learning_rate");
    study.report(*trial, trial->until - 1, 2 + rate);
    study.tell(*trial, 1 / static_cast<double>(trial->until) + rate);
  }
  return study;
}

void expect_whole(const std::string& page) {
  for (const char* tag : {"svg", "section", "script", "table", "g", "p", "pre"}) {
    const std::string name = tag;
    EXPECT_EQ(times_in(page, "<" + name + ">") + times_in(page, "<" + name + " "),
              times_in(page, "</" + name + ">"))
        << name;
  }
  for (const char* loads : {"http", " src=", "<link", "url(", "@import", "nan,", ">nan", "inf "}) {
    EXPECT_FALSE(testing::contains(page, loads)) << loads;
  }
}

TEST(SweepPage, without_a_trial_or_a_value_says_so) {
  Study study(mixed_space(), {.sampler = "random", .trials = 2, .metric = "loss"});
  const std::string before = sweep_page(study, {.name = "sweeps/a"});
  TANREN_EXPECT_CONTAINS(before, "No trial has a value yet.");
  TANREN_EXPECT_CONTAINS(before, "No trial has an evaluation yet.");
  TANREN_EXPECT_CONTAINS(before, "no trial yet; not done yet");
  EXPECT_FALSE(testing::contains(before, "<svg"));
  EXPECT_TRUE(data_in(before)["trials"].empty());
  expect_whole(before);
  while (const auto trial = study.ask()) study.tell(*trial, TrialOutcome::hung, "no life", 0);
  const std::string page = sweep_page(study, {.name = "sweeps/a"});
  TANREN_EXPECT_CONTAINS(page, "No trial has a value yet.");
  TANREN_EXPECT_CONTAINS(page, "<td>no life</td>");
  TANREN_EXPECT_CONTAINS(page, "2 hung<br>");
  EXPECT_FALSE(testing::contains(page, "<svg"));
  EXPECT_TRUE(data_in(page)["trials"][1]["value"].is_null());
}

TEST(SweepPage, has_the_numbers_of_the_leaderboard) {
  const Study study = mixed_study();
  const std::string page = sweep_page(study, {.name = "sweeps/a"});
  expect_whole(page);
  const auto data = data_in(page);
  const auto board = parse_json(leaderboard_json(study));
  EXPECT_EQ(data["metric"], "loss");
  ASSERT_EQ(data["trials"].size(), 16u);
  for (size_t i = 0; i < 16; ++i) {
    const auto& one = data["trials"][i];
    for (const char* key : {"trial", "state", "value", "step", "values", "metrics"}) {
      EXPECT_EQ(one[key], board["trials"][i][key]) << i << key;
    }
  }
  TANREN_EXPECT_CONTAINS(page,
                         "16 trials by loss, the lower the better; sampler random; asha: "
                         "rungs from 2 steps on, one of 2 goes on");
  TANREN_EXPECT_CONTAINS(page, escaped(counts_text(study)) + "<br>");
  const TrialRecord& best = *study.best();
  TANREN_EXPECT_CONTAINS(part_of(page, "<g id=\"best-curve\"", "</g>"),
                         "data-trial=\"" + std::to_string(best.id) + "\"");
  TANREN_EXPECT_CONTAINS(page, fmt::format("Trial {:04}: loss {} at step 8 (finished).", best.id,
                                           to_text(*best.value)));
  TANREN_EXPECT_CONTAINS(page, "0.0001 … 0.1");
}

TEST(SweepPage, draws_each_dimension_for_the_trials_that_have_it) {
  const Study study = mixed_study();
  const std::string page = sweep_page(study, {});
  int64_t with_momentum = 0, crashed = 0;
  for (const TrialRecord& record : study.records()) {
    with_momentum += record.values.size() == 3 ? 1 : 0;
    crashed += record.value ? 0 : 1;
  }
  ASSERT_GT(with_momentum, 0);
  ASSERT_LT(with_momentum, 16);
  ASSERT_EQ(crashed, 3);
  const std::string rate = part_of(page, "<svg id=\"dimension-0\"", "</svg>");
  EXPECT_EQ(times_in(rate, "data-trial="), 16);
  EXPECT_EQ(times_in(rate, "l6 6m0 -6l-6 6"), crashed);
  EXPECT_EQ(times_in(rate, "no value</text>"), 1);
  EXPECT_EQ(times_in(rate, "<circle"), 1);
  for (const char* tick : {">0.0001<", ">0.001<", ">0.01<", ">0.1<"}) {
    TANREN_EXPECT_CONTAINS(rate, tick);
  }
  const std::string momentum = part_of(page, "<svg id=\"dimension-2\"", "</svg>");
  EXPECT_EQ(times_in(momentum, "data-trial="), with_momentum);
  TANREN_EXPECT_CONTAINS(momentum, "optimizer.momentum where optimizer.kind=sgd");
  const std::string kind = part_of(page, "<svg id=\"dimension-1\"", "</svg>");
  TANREN_EXPECT_CONTAINS(kind, ">adamw</text>");
  TANREN_EXPECT_CONTAINS(kind, ">sgd</text>");
}

TEST(SweepPage, escapes_whatever_a_user_a_file_or_an_error_says) {
  const std::string evil = "</script><script>alert('\"&é')</script>";
  Study study(Space({{.key = "model.options.<i>", .values = {evil, "b"}}}),
              {.sampler = "grid", .metric = "<b>loss"});
  study.tell(*study.ask(), 0.5);
  study.tell(*study.ask(), TrialOutcome::failed, "<img src=x>\xff " + evil, 0);
  const std::string page = sweep_page(study, {.name = "a</title>\xff" + evil,
                                              .best_sets = "--set 'model.options.<i>=" + evil + "'",
                                              .best_toml = "[model.options]\n</pre>" + evil,
                                              .seconds = 185,
                                              .cpu_seconds = 600});
  EXPECT_EQ(times_in(page, "<script"), 3);  // the data, and one each of all pages and this one
  EXPECT_EQ(times_in(page, "</script>"), 3);
  for (const char* raw : {"alert('\"", "<img", "<i>", "<b>", "a</title>", "\xff", "</pre>&lt;"}) {
    EXPECT_FALSE(testing::contains(page, raw)) << raw;
  }
  TANREN_EXPECT_CONTAINS(page, "[model.options]\n&lt;/pre&gt;&lt;/script&gt;&lt;script&gt;alert('");
  TANREN_EXPECT_CONTAINS(page, "&lt;img src=x&gt;\xef\xbf\xbd &lt;/script&gt;");
  TANREN_EXPECT_CONTAINS(page, "the sweep ran 3m05s; its trials used 10m00s of processor time");
  EXPECT_EQ(data_in(page)["trials"][0]["values"]["model.options.<i>"], evil);
}

TEST(SweepPage, shows_what_other_seeds_say_of_the_best) {
  StudyOptions options{.sampler = "grid", .seed = 3, .steps = 8};
  options.metric = "<b>loss";
  Study study(Space({{.key = "kind", .values = {"a", "b"}}}), options);
  study.tell(*study.ask(), 0.5);
  study.tell(*study.ask(), 0.6);
  EXPECT_FALSE(testing::contains(sweep_page(study, {}), "other seeds"));
  const std::map<std::string, double> values = {{"the file, seed 4", 0.9},
                                                {"the file, seed 5", 0.8},
                                                {"trial 0000, seed 4", 0.5},
                                                {"trial 0000, seed 5", 0.45},
                                                {"trial 0001, seed 5", 0.7}};
  const auto is_file = [](const TrialRecord&) { return false; };
  for (const ConfirmingRun& run : runs_to_confirm(study, 2, is_file)) {
    const auto found = values.find(name_of(run));
    if (found != values.end()) {
      study.confirm({.run = run, .step = 8, .value = found->second});
    } else {
      study.confirm({.run = run, .step = 3, .outcome = TrialOutcome::crashed, .reason = "<img>"});
    }
  }
  const std::string page = sweep_page(study, {});
  expect_whole(page);
  const auto lines = confirmation_lines(study);
  ASSERT_EQ(lines.size(), 3u);  // two trials, and the run that crashed
  for (const std::string& line : lines) {
    TANREN_EXPECT_CONTAINS(page, "<p>" + escaped(line) + "</p>");
    TANREN_EXPECT_CONTAINS(leaderboard_text(study), "  " + line + "\n");
  }
  TANREN_EXPECT_CONTAINS(page, "<h2>&lt;b&gt;loss by seed</h2>");
  TANREN_EXPECT_CONTAINS(page,
                         "<td>4</td><td class=\"n\">0.9</td><td class=\"n\">0.5 (-0.4)</td>"
                         "<td class=\"n\">crashed</td>");
  TANREN_EXPECT_CONTAINS(page,
                         "<td>5</td><td class=\"n\">0.8</td><td class=\"n\">0.45 (-0.35)</td>"
                         "<td class=\"n\">0.7 (-0.1)</td>");
}

// Values at which a logarithm, a ratio or a difference has no number.
TEST(SweepPage, has_an_axis_for_every_value) {
  using Values = std::vector<double>;
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  for (const Values& values : {Values{0}, Values{0, 0}, Values{0, 1e6}, Values{kLeast, kMost},
                               Values{-kMost, kMost}, Values{-1, 0, 1e-300}, Values{kMost}}) {
    for (const bool lower : {true, false}) {
      StudyOptions options{.sampler = "random", .steps = 8};
      options.trials = std::ssize(values);
      options.lower_is_better = lower;
      Study study(Space({{.key = "rate", .low = 1e-4, .high = 0.1, .scale = "log"}}), options);
      for (const double value : values) study.tell(*study.ask(), value);
      const std::string page = sweep_page(study, {});
      expect_whole(page);
      EXPECT_EQ(times_in(part_of(page, "<svg id=\"dimension-0\"", "</svg>"), "data-trial="),
                std::ssize(values));
      for (const char* none : {"nan", "inf"}) {
        EXPECT_FALSE(testing::contains(part_of(page, "<svg id=\"curves\"", "</svg>"), none));
        EXPECT_FALSE(testing::contains(part_of(page, "<svg id=\"dimension-0\"", "</svg>"), none));
      }
    }
  }
}

TEST(SweepPage, of_another_program_does_not_say_what_its_scheduler_does) {
  Study study(mixed_space(),
              {.sampler = "random", .scheduler = "external", .trials = 2, .steps = 8});
  const std::string page = sweep_page(study, {});
  TANREN_EXPECT_CONTAINS(page, "another program decides which go on");
  EXPECT_FALSE(testing::contains(page, "each runs to its end"));
}

TEST(SweepPage, draws_a_fork_from_where_its_source_stood) {
  Study study(Space({{.key = "rate", .low = 0.1, .high = 1.0}}),
              {.sampler = "random", .scheduler = "pbt", .trials = 2, .steps = 6, .interval = 3});
  const auto good = study.ask(), bad = study.ask();
  study.tell(*good, 1.0);
  study.tell(*bad, 2.0);
  const auto fork = study.ask();
  ASSERT_EQ(fork->fork_of, good->id);
  study.tell(*fork, 0.5);
  study.tell(*study.ask(), 0.75);
  const std::string page = sweep_page(study, {});
  const nlohmann::json data = data_in(page)["trials"][0];
  EXPECT_EQ(data["trial"], 2);
  EXPECT_EQ(data["fork_of"], 0);
  EXPECT_EQ(data["fork_step"], 3);
  EXPECT_EQ(data["metrics"].dump(), "[[6,0.5]]");
  // A line from step 3, half way, to step 6.
  const double middle = PlotArea::kLeft + PlotArea::kWidth / 2;
  const std::string path = part_of(page, "<g id=\"best-curve\"", "</g>");
  TANREN_EXPECT_CONTAINS(path, fmt::format("M{:.1f} ", middle));
  EXPECT_EQ(times_in(path, "L"), 1) << path;
  TANREN_EXPECT_CONTAINS(page, "<td>trial 0000 at step 3</td>");
  TANREN_EXPECT_CONTAINS(page, "<th>from</th>");
}

TEST(SweepPage, takes_the_evaluations_of_a_log_where_the_journal_has_none) {
  Study study(mixed_space(), {.sampler = "random", .trials = 2, .metric = "loss"});
  const auto first = study.ask(), second = study.ask();
  study.tell(*first, TrialOutcome::diverged, "the loss is not finite", 30);
  SweepPageFacts facts;
  facts.logs[0] = {{10, 1.0}, {20, kNoNumber}, {30, 4.0}};
  facts.logs[second->id].emplace_back(10, 2.0);
  const std::string page = sweep_page(study, facts);
  const std::string curves = part_of(page, "<svg id=\"curves\"", "</svg>");
  // A value that is not finite parts a curve; what is left are dots.
  EXPECT_EQ(times_in(curves, "h0"), 3);
  EXPECT_EQ(data_in(page)["trials"][1]["metrics"].dump(), "[[10,1.0],[20,null],[30,4.0]]");
  expect_whole(page);
}

TEST(SweepPage, of_thousands_of_trials_shows_the_best_and_some_of_the_others) {
  std::vector<DimensionOptions> dimensions;
  for (int i = 0; i < 9; ++i) {
    dimensions.push_back(
        {.key = "optimizer.some_number_" + std::to_string(i), .low = 0.0, .high = 1.0});
  }
  Study study(Space(dimensions), {.sampler = "random", .trials = 4000, .metric = "loss"});
  while (const auto trial = study.ask()) {
    if (trial->id % 3 == 0) {
      study.tell(*trial, TrialOutcome::failed, std::string(300, 'x'), 0);
    } else {
      study.tell(*trial, trial->number("optimizer.some_number_0"));
    }
  }
  SweepPageFacts facts;
  const auto drawn = curve_trials(study);
  ASSERT_EQ(drawn.size(), 200u);
  EXPECT_EQ(drawn[0], study.best());
  EXPECT_FALSE(drawn.back()->value);
  for (const TrialRecord* record : drawn) {
    Evaluations& log = facts.logs[record->id];
    for (int64_t i = 1; i <= 2000; ++i) log.emplace_back(i, 1.0 / static_cast<double>(i));
  }
  const std::string page = sweep_page(study, facts);
  EXPECT_LT(page.size(), 3'000'000u);
  EXPECT_GT(page.size(), 500'000u);
  const auto data = data_in(page);
  ASSERT_EQ(data["trials"].size(), 8000u / 9);
  EXPECT_EQ(data["trials"][0]["trial"], study.best()->id);
  EXPECT_EQ(data["trials"][0]["metrics"].size(), 100u);
  TANREN_EXPECT_CONTAINS(page, " of 4000 trials: the best, and every so many of the others.");
  expect_whole(page);
}

TEST(PageTrials, are_the_first_half_and_even_steps_through_the_rest) {
  using Numbers = std::vector<size_t>;
  EXPECT_EQ(first_and_spread(0, 4), Numbers());
  EXPECT_EQ(first_and_spread(4, 4), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(first_and_spread(10, 4), (Numbers{0, 1, 5, 9}));
  EXPECT_EQ(first_and_spread(5, 4), (Numbers{0, 1, 2, 4}));
  for (const size_t count : Numbers{201, 399, 1000, 12345}) {
    const Numbers numbers = first_and_spread(count, 200);
    ASSERT_EQ(numbers.size(), 200u);
    EXPECT_EQ(numbers[99], 99u);
    EXPECT_EQ(numbers.back(), count - 1);
    EXPECT_TRUE(std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) ==
                numbers.end());
  }
}

TEST(PageTrials, thinned_curves_keep_their_ends_and_their_best) {
  Evaluations all;
  for (int64_t i = 0; i < 1000; ++i) all.emplace_back(i, i == 777 ? -5.0 : i == 333 ? 5.0 : 0.0);
  all[10].second = kNoNumber;
  for (const bool lower : {true, false}) {
    const Evaluations few = thinned(all, 50, lower);
    EXPECT_EQ(few.size(), 51u);
    EXPECT_EQ(few.front(), all.front());
    EXPECT_EQ(few.back(), all.back());
    EXPECT_EQ(std::count(few.begin(), few.end(), all[lower ? 777 : 333]), 1);
    EXPECT_TRUE(std::is_sorted(few.begin(), few.end(),
                               [](const auto& a, const auto& b) { return a.first < b.first; }));
  }
  EXPECT_EQ(thinned({all[0], all[1]}, 2, true).size(), 2u);
}

TEST(PageTrials, texts_are_one_line_of_whole_characters) {
  EXPECT_EQ(page_text("a\nb\xff"), "a b\xef\xbf\xbd");
  EXPECT_EQ(page_text("éé", 3), "é…");
  EXPECT_EQ(page_text("abc", 3), "abc");
}

TEST(PageTrials, every_state_has_its_look) {
  EXPECT_EQ(look_of("finished").states, "finished");
  EXPECT_EQ(look_of("paused").states, look_of("stopped").states);
  EXPECT_NE(look_of("crashed").color, look_of("finished").color);
  for (const char* state : {"running", "waiting", "diverged", "out_of_memory", "too_large",
                            "refused", "crashed", "hung", "failed"}) {
    TANREN_EXPECT_CONTAINS(look_of(state).states, state);
  }
}

TEST(MetricAxis, leaves_out_what_is_far_worse_than_nine_of_ten) {
  std::vector<double> values = {1e9};
  for (int i = 1; i < 10; ++i) values.push_back(i / 10.0);
  const MetricAxis low = metric_axis(values, /*lower_is_better=*/true);
  EXPECT_EQ(low.beyond, 1u);
  EXPECT_LT(low.axis.high, 1);
  EXPECT_GT(low.axis.high, 0.9);
  const MetricAxis high = metric_axis({0.9, -5, 0.8}, /*lower_is_better=*/false);
  EXPECT_EQ(high.beyond, 1u);
  EXPECT_GT(high.axis.low, 0.7);
  EXPECT_FALSE(high.axis.is_log);
  const MetricAxis curve = metric_axis({2.5, 0.5, 0.1, 0.02, 0.005}, /*lower_is_better=*/true);
  EXPECT_EQ(curve.beyond, 0u);
  EXPECT_TRUE(curve.axis.is_log);
  EXPECT_LT(curve.axis.low, 0.005);
  EXPECT_GT(curve.axis.high, 2.5);
  EXPECT_EQ(metric_axis({3}, true).beyond, 0u);
  EXPECT_EQ(beyond_text(0, "value"), "");
  EXPECT_EQ(beyond_text(1, "value"), "1 value lies beyond the axis and is drawn at its end.");
  EXPECT_EQ(beyond_text(2, "value"), "2 values lie beyond the axis and are drawn at its end.");
}

}  // namespace
}  // namespace tanren
