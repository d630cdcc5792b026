#include "tanren/run/run_sinks.h"

#include "tanren/base/error.h"
#include "tanren/metrics/evaluation_file.h"
#include "tanren/metrics/incident_file.h"
#include "tanren/metrics/jsonl_sink.h"
#include "tanren/metrics/picture_files.h"
#include "tanren/metrics/tensorboard_sink.h"

#include <filesystem>

namespace tanren {

std::vector<std::unique_ptr<Sink>> make_sinks(
    const RunFolder& folder, const RunState& state, bool repeats_evaluation,
    const MetricsOptions& options, std::span<const ConfigChange> changes,
    std::vector<std::pair<std::string, std::string>> texts,
    const std::vector<std::string>& class_names) {
  std::vector<std::unique_ptr<Sink>> sinks;
  if (options.jsonl) {
    truncate_log(folder.log(), state.attempt, !repeats_evaluation);
    std::vector<std::string> lines;
    for (const ConfigChange& change : changes) {
      const std::string line = log_line(change, state.attempt + 1);
      const std::string what = line.substr(line.find(','));
      if (!has_line_ending(folder.log(), what)) lines.push_back(line);
    }
    sinks.push_back(make_jsonl_sink(folder.log(), lines));
  }
  if (options.tensorboard) {
    sinks.push_back(make_tensorboard_sink(folder.path() / "tensorboard",
                                          {.every = options.tensorboard_every,
                                           .step = state.step(),
                                           .texts = std::move(texts),
                                           .repeats_evaluation = repeats_evaluation}));
  }
  if (options.images_every > 0 ||
      std::filesystem::exists(folder.path() / "images")) {  // which drops later pictures
    sinks.push_back(make_picture_files_sink(folder.path() / "images", state.step()));
  }
  sinks.push_back(make_incident_file_sink(folder.path() / "incidents.jsonl"));
  sinks.push_back(
      make_evaluation_file_sink(folder.path() / "evaluation.json", state.step(), class_names));
  return sinks;
}

void remove_unsaved(const RunFolder& folder) {
  namespace fs = std::filesystem;
  for (const char* name : {"log.jsonl", "evaluation.json", "tensorboard", "images"}) {
    const fs::path place = folder.path() / name;
    std::error_code error;
    fs::remove_all(place, error);
    if (error) {
      throw RunError("[run] cannot remove " + place.string() + " (" + error.message() +
                     "), which an earlier start left; remove it yourself");
    }
  }
}

}  // namespace tanren
