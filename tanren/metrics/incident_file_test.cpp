#include "tanren/metrics/incident_file.h"

#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace tanren {
namespace {

Incident small_incident() {
  Incident incident;
  incident.attempt = 3;
  incident.step = 2;
  incident.operation = "convolution";
  incident.block = "layer2.0";
  incident.bytes = 4096;
  incident.message = "no room";
  incident.microbatch = 48;
  incident.next_microbatch = 24;
  incident.global_batch = 512;
  incident.shapes = {{"inputs", {48, 3, 8, 8}}};
  incident.owners = {{"weights", 100}};
  incident.recent_peaks = {7, 8};
  return incident;
}

TEST(IncidentFile, what_cannot_be_written_is_told_once_and_the_run_goes_on) {
  std::string told;
  const auto before =
      set_log_sink([&](std::string_view line) { told += std::string(line) + "\n"; });
  const auto sink = make_incident_file_sink("/nowhere/at/all/incidents.jsonl");
  sink->incident(small_incident());
  sink->incident(small_incident());
  set_log_sink(before);
  EXPECT_EQ(told, "[metrics] cannot write /nowhere/at/all/incidents.jsonl; the run goes on\n");
}

TEST(IncidentFile, has_a_line_for_each_and_none_before_the_first) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "incidents.jsonl";
  const auto sink = make_incident_file_sink(file);
  EXPECT_FALSE(std::filesystem::exists(file));
  sink->incident(small_incident());
  sink->incident(small_incident());
  const std::string text = read_file(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  const auto json = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(json["block"], "layer2.0");
  EXPECT_EQ(json["shapes"]["inputs"], (std::vector<int>{48, 3, 8, 8}));
  EXPECT_EQ(json["owners"]["weights"], 100);
  EXPECT_EQ(json["recent_peaks"], (std::vector<int>{7, 8}));
  EXPECT_FALSE(json.contains("limit_bytes"));
}

TEST(IncidentFile, the_text_says_where_and_what_follows) {
  Incident incident = small_incident();
  EXPECT_EQ(incident_text(incident),
            "out of memory at layer2.0 (convolution): microbatch 48 → 24, global batch still 512");
  incident.in_backward = true;
  incident.next_microbatch = 48;
  EXPECT_EQ(incident_text(incident),
            "out of memory at layer2.0 (convolution, backward): microbatch 48 once more with the "
            "cache freed, global batch still 512");
  incident.block = incident.operation = "";
  EXPECT_EQ(incident_text(incident).substr(0, 25), "out of memory (backward):");
}

}  // namespace
}  // namespace tanren
