#include "tanren/metrics/console_sink.h"

#include "tanren/base/one_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace tanren {
namespace {

StepReport console_report(int64_t step) {
  StepReport report;
  report.attempt = step;
  report.step = step;
  report.samples = 30;
  report.objectives.resize(1);
  report.objectives[0].loss = 0.5;
  report.objectives[0].learning_rate = 0.001;
  report.seconds = 0.1;
  report.memory_bytes = 3 << 20;
  return report;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(ConsoleSink, always_shows_a_skipped_step_with_its_cause) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 100, .console_every = 50});
  auto report = console_report(3);
  report.objectives[0].verdict = {Action::skip, Cause::overflow};
  report.objectives[0].loss_scale = 65536;
  sink->step(report);
  EXPECT_TRUE(has(out.str(), "step 3/100")) << out.str();
  EXPECT_TRUE(has(out.str(), "skipped: overflow")) << out.str();
  EXPECT_TRUE(has(out.str(), "loss_scale 65536")) << out.str();
}

TEST(ConsoleSink, names_the_culprit_of_a_halt) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 100});
  auto report = console_report(3);
  report.objectives[0].verdict = {Action::halt, Cause::nan_gradient};
  report.culprit = "microbatch 2, head.weight";
  sink->step(report);
  EXPECT_TRUE(has(out.str(), "halted: non-finite gradient")) << out.str();
  EXPECT_TRUE(has(out.str(), "microbatch 2, head.weight")) << out.str();
}

TEST(ConsoleSink, tells_of_a_spike_between_its_lines) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 100, .console_every = 50});
  auto report = console_report(3);
  report.objectives[0].verdict.cause = Cause::spike;
  report.objectives[0].spike = Spike{"grad_norm", 30, 1.5, 12};
  sink->step(report);
  EXPECT_TRUE(has(out.str(), "spike: grad_norm 30 is 12 deviations above its running mean 1.5"))
      << out.str();
}

TEST(ConsoleSink, tells_of_one_spike_a_window_and_counts_the_others) {
  std::ostringstream out;
  {
    const auto sink =
        make_console_sink(out, {.total_steps = 1000, .console_every = 1000, .spike_window = 100});
    for (int64_t step = 1; step < 250; step += 2) {
      auto report = console_report(step);
      report.objectives[0].spike = Spike{"loss", 30, 1.5, 12};
      sink->step(report);
    }
  }
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_TRUE(has(text, "step 1/1000  spike: loss")) << text;
  EXPECT_TRUE(has(text, "step 101/1000  spike: loss") && has(text, "(49 more since step 1)"))
      << text;
  EXPECT_TRUE(has(text, "(49 more since step 101)")) << text;
  EXPECT_TRUE(has(text, "24 more since step 201; log.jsonl has each")) << text;
}

TEST(ConsoleSink, shows_every_kth_applied_step_and_the_last) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 25, .console_every = 10});
  for (int64_t i = 1; i <= 25; ++i) sink->step(console_report(i));
  const auto text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_TRUE(has(text, "step 10/25") && has(text, "step 20/25") && has(text, "step 25/25"))
      << text;
}

TEST(ConsoleSink, shows_loss_rate_eta_and_memory_of_a_plain_line) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 101});
  sink->step(console_report(1));
  EXPECT_EQ(out.str(), "step 1/101  loss 0.5  lr 0.001  300 samples/s  eta 10.0s  3.0 MiB\n");
}

TEST(ConsoleSink, names_the_rates_of_objectives_that_differ) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 101});
  auto report = console_report(1);
  report.several = true;
  report.objectives[0].name = "critic";
  report.objectives.push_back(report.objectives[0]);
  report.objectives[1].name = "generator";
  sink->step(report);
  EXPECT_TRUE(has(out.str(), "critic 0.5  generator 0.5  lr 0.001  300")) << out.str();
  report.step = 2;
  report.objectives[1].learning_rate = 0.0005;
  sink->step(report);
  report.step = 3;
  report.objectives.pop_back();  // out of turn: its last rate
  sink->step(report);
  EXPECT_TRUE(has(out.str(),
                  "step 3/101  critic 0.5  generator 0.5  lr 0.001 (critic), 0.0005 "
                  "(generator)  "))
      << out.str();
}

TEST(ConsoleSink, counts_only_this_session_after_a_resume) {  // transformers#40560
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 1000});
  sink->step(console_report(991));
  EXPECT_TRUE(has(out.str(), "  300 samples/s  eta 0.9s")) << out.str();
}

TEST(ConsoleSink, leaves_skipped_steps_out_of_the_eta) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 102});
  auto skipped = console_report(1);
  skipped.objectives[0].verdict = {Action::skip, Cause::overflow};
  sink->step(skipped);
  sink->step(console_report(2));  // one applied step in (nearly) two steps' time
  EXPECT_TRUE(has(out.str(), "eta 19.9s")) << out.str();
}

TEST(ConsoleSink, prints_no_eta_without_a_known_length) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {});
  sink->step(console_report(5));
  EXPECT_EQ(out.str().substr(0, 8), "step 5  ");
  EXPECT_FALSE(has(out.str(), "eta"));
}

TEST(ConsoleSink, shows_an_evaluation_whatever_console_every_is) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 9, .console_every = 1000});
  sink->evaluation({.step = 4, .samples = 360, .values = {{"accuracy", 0.975}}, .seconds = 0.2});
  EXPECT_EQ(out.str(), "evaluation at step 4:  accuracy 0.975  (360 samples, 0.2s)\n");
}

TEST(ConsoleSink, names_each_objective_where_there_are_several) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 9});
  auto report = console_report(1);
  report.objectives[0].name = "generator";
  report.objectives.resize(2);
  report.several = true;
  report.objectives[1].name = "discriminator";
  report.objectives[1].loss = 0.25;
  sink->step(report);
  EXPECT_TRUE(has(out.str(), "generator 0.5  discriminator 0.25")) << out.str();
}

TEST(ConsoleSink, shows_the_latest_loss_of_an_objective_that_is_out_of_turn) {
  std::ostringstream out;
  const auto sink = make_console_sink(out, {.total_steps = 9, .console_every = 2});
  auto report = console_report(1);
  report.several = true;
  report.objectives[0].name = "critic";
  auto with_both = report;
  with_both.objectives.push_back(report.objectives[0]);
  with_both.objectives[1].name = "generator";
  with_both.objectives[1].loss = 0.25;
  sink->step(with_both);
  report.step = 2;
  sink->step(report);
  EXPECT_TRUE(has(out.str(), "critic 0.5  generator 0.25")) << out.str();
}

TEST(ConsoleSink, redraws_one_line_on_a_terminal_and_never_wraps_it) {
  std::ostringstream out;
  {
    const auto sink = make_console_sink(
        out, {.total_steps = 10, .terminal = true, .width = 90, .refresh_seconds = 0});
    for (int64_t i = 1; i <= 10; ++i) sink->step(console_report(i));
    EXPECT_FALSE(has(out.str(), "\n"));
  }
  const auto text = out.str();
  EXPECT_EQ(text.back(), '\n');  // the bar is ended
  size_t lines = 0;
  for (size_t begin = text.find('\r'); begin != std::string::npos; ++lines) {
    const size_t end = text.find('\r', begin + 1);
    const auto drawn = text.substr(begin + 1, text.find("\x1b[K", begin) - begin - 1);
    EXPECT_LT(drawn.size(), 90u) << drawn;
    begin = end;
  }
  EXPECT_EQ(lines, 10u);
  EXPECT_TRUE(has(text, "[####################") && has(text, "step 10/10")) << text;
}

TEST(ConsoleSink, cuts_a_line_between_two_characters_of_a_name) {
  StepReport report = console_report(1);
  report.several = true;
  report.objectives.push_back(report.objectives.front());
  for (auto& objective : report.objectives) objective.name = "éééééé";
  for (int64_t width = 20; width < 60; ++width) {
    std::ostringstream out;
    make_console_sink(out, {.total_steps = 10, .terminal = true, .width = width})->step(report);
    EXPECT_EQ(utf8_text(out.str()), out.str()) << width;
  }
}

TEST(ConsoleSink, thins_a_fast_terminal_run_but_draws_its_last_step) {
  std::ostringstream out;
  const auto sink =
      make_console_sink(out, {.total_steps = 50, .terminal = true, .refresh_seconds = 1e9});
  for (int64_t i = 1; i <= 50; ++i) sink->step(console_report(i));
  const auto text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2);  // the first and the last
  EXPECT_TRUE(has(text, "step 50/50"));
}

TEST(ConsoleSink, moves_the_bar_out_of_the_way_of_a_line) {
  std::ostringstream out;
  const auto sink =
      make_console_sink(out, {.total_steps = 9, .terminal = true, .refresh_seconds = 0});
  sink->step(console_report(1));
  sink->evaluation({.step = 1, .values = {{"accuracy", 1}}});
  EXPECT_TRUE(has(out.str(), "\r\x1b[Kevaluation at step 1")) << out.str();
}

}  // namespace
}  // namespace tanren
