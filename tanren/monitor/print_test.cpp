#include "tanren/monitor/print.h"
#include "tanren/base/text.h"
#include "tanren/monitor/monitor_test_util.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tanren {
namespace {

Look bare_look() {
  Look look;
  look.machine.cores = 8;
  look.machine.allowed_cores = 8;
  look.machine.total_bytes = 64 * kGiB;
  look.machine.available_bytes = 48 * kGiB;
  look.why_no_devices = "no NVIDIA driver here";
  return look;
}

Look full_look() {
  Look look = bare_look();
  look.interval_seconds = 1;
  look.busy_share = 0.5;
  look.machine.allowed_cores = 2;
  look.cgroup_busy_cores = 1.5;
  look.machine.cgroup_limit_bytes = 8 * kGiB;
  look.machine.cgroup_used_bytes = 3 * kGiB;
  look.machine.cgroup_cache_bytes = kGiB;
  look.machine.swap_total_bytes = 4 * kGiB;
  look.machine.swap_free_bytes = 3 * kGiB;
  look.driver = "999.1";
  look.why_no_devices.clear();
  look.devices = {{.index = 0,
                   .name = "Stand-in A",
                   .total_bytes = 80 * kGiB,
                   .used_bytes = 3 * kGiB,
                   .free_bytes = 76 * kGiB,
                   .busy_share = 0.97,
                   .celsius = 61,
                   .watts = 312.5,
                   .watts_limit = 700,
                   .processes = {{4711, 2 * kGiB}, {9, std::nullopt}}},
                  {.index = 1, .problem = "GPU is lost"}};
  look.process_names[4711] = "tanren";
  RunLook run;
  run.status.folder = "/data/runs/text";
  run.status.process = {
      .pid = 4711, .name = "tanren", .age_seconds = 90, .threads = 9, .resident_bytes = 2 * kGiB};
  run.status.total_steps = 700;
  run.status.log_age_seconds = 0.25;
  run.status.log = LogTail{.attempt = 101,
                           .step = 100,
                           .loss = 2.5,
                           .learning_rate = 0.001,
                           .verdict = "skip",
                           .cause = "overflow",
                           .samples_per_second = 64,
                           .seconds_per_step = 0.5,
                           .evaluation_step = 50,
                           .evaluation = {{"loss", 3.25}}};
  run.busy_cores = 1.25;
  run.device_bytes = {{0, 2 * kGiB}};
  look.runs.push_back(run);
  return look;
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in:\n" << text;
  }
}

TEST(LookText, a_machine_without_devices_limits_and_runs_says_so) {
  EXPECT_EQ(look_text(bare_look(), 0),
            "cpu      - of 8 cores  load 0 0 0\n"
            "memory   48 GiB available of 64 GiB  swap none\n\n"
            "devices  none: no NVIDIA driver here\n\n"
            "runs     none\n");
}

TEST(LookText, everything_that_is_known_is_shown) {
  expect_parts(
      look_text(full_look(), 0),
      {"50 % of 8 cores, 2 allowed here (1.5 used)",
       "cgroup 3.0 GiB of 8.0 GiB (file cache 1.0 GiB)", "swap 1.0 GiB of 4.0 GiB", "Stand-in A",
       "97 %", "312 of 700", "device 1: GPU is lost", "4711   tanren  2.0 GiB", "by PCI bus",
       "/data/runs/text", "100/700", "0.001", "64", "5m00s", "0.2s ago", "125 %", "0: 2.0 GiB",
       "pid 4711: attempt 101 skip: overflow", "evaluation at step 50:  loss 3.25"});
}

TEST(LookText, no_line_is_wider_than_the_terminal) {
  Look look = full_look();
  look.runs[0].status.folder = "/データ/" + std::string(200, 'x') + "/学習";
  for (const int64_t width : {1, 7, 40, 80, 133}) {
    const std::string text = look_text(look, width);
    std::string_view rest = text;
    while (!rest.empty()) EXPECT_LE(display_width(take_line(rest)), width);
  }
}

TEST(LookText, names_from_elsewhere_cannot_steer_the_terminal) {
  Look look = full_look();
  look.runs[0].status.folder = "/a\x1b[2J\nb";
  look.process_names[4711] = "e\x1b]0;x";
  look.runs[0].status.log->cause = "c\r";
  for (const auto& text : {look_text(look, 0), look_lines(look)}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
    EXPECT_EQ(text.find('\r'), std::string::npos) << text;
  }
}

TEST(LookText, a_run_that_has_logged_nothing_yet_is_starting) {
  Look look = full_look();
  look.runs[0].status.log.reset();
  look.runs[0].status.log_age_seconds.reset();
  expect_parts(look_text(look, 0),
               {"-/700", "pid 4711: no step logged yet by this process, started 1m30s ago"});
}

TEST(LookLines, one_line_each_for_machine_device_and_run) {
  const std::string text = look_lines(full_look());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  expect_parts(text, {"  cpu 50 %", "  device 0  Stand-in A  3.0 GiB of 80 GiB  busy 97 %",
                      "  device 1    GPU is lost\n",
                      "  run /data/runs/text  pid 4711  step 100/700  loss 2.5"});
}

TEST(LookJson, what_is_unknown_is_null) {
  const auto json = nlohmann::json::parse(look_json(bare_look()));
  EXPECT_TRUE(json["cpu"]["busy_share"].is_null());
  EXPECT_TRUE(json["memory"]["cgroup_limit_bytes"].is_null());
  EXPECT_EQ(json["why_no_devices"], "no NVIDIA driver here");
  EXPECT_TRUE(json["devices"].empty());
  EXPECT_TRUE(json["runs"].empty());
}

TEST(LookJson, holds_every_figure_in_bytes_seconds_and_shares) {
  const auto json = nlohmann::json::parse(look_json(full_look()));
  EXPECT_EQ(json["memory"]["cgroup_used_bytes"], 3 * kGiB);
  EXPECT_EQ(json["cpu"]["allowed_cores"], 2);
  EXPECT_EQ(json["devices"][0]["processes"][0],
            (nlohmann::json{{"pid", 4711}, {"name", "tanren"}, {"bytes", 2 * kGiB}}));
  EXPECT_TRUE(json["devices"][0]["processes"][1]["bytes"].is_null());
  EXPECT_EQ(json["devices"][1]["problem"], "GPU is lost");
  const auto& run = json["runs"][0];
  EXPECT_EQ(run["folder"], "/data/runs/text");
  EXPECT_EQ(run["seconds_left"], 300);
  EXPECT_EQ(run["log"]["step"], 100);
  EXPECT_EQ(run["log"]["evaluation"]["loss"], 3.25);
  EXPECT_EQ(run["devices"][0]["index"], 0);
  EXPECT_EQ(run["busy_cores"], 1.25);
}

TEST(LookJson, a_path_that_is_no_utf8_does_not_break_it) {
  Look look = full_look();
  look.runs[0].status.folder = "/a\xff";
  EXPECT_TRUE(nlohmann::json::accept(look_json(look)));
}

}  // namespace
}  // namespace tanren
