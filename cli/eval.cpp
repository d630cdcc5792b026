#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/comm/world.h"
#include "tanren/metrics/evaluation_file.h"
#include "tanren/run/run.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <iostream>
#include <utility>

namespace tanren::cli {

namespace {

// Evaluates a whole model's file on DATA, or a run's checkpoint, on DATA if it is given. Returns
// the path of what was evaluated and the result.
std::pair<std::filesystem::path, Evaluated> evaluated_of(const Arguments& arguments,
                                                         const Registry& registry) {
  const std::filesystem::path file = arguments.file;
  const PredictionsTo predictions{arguments.predictions, arguments.force};
  if (file.extension() == ".safetensors" && !std::filesystem::is_directory(file)) {
    return {file, evaluate_whole_model(file, arguments.target, arguments.sets, registry, nullptr,
                                       arguments.out, predictions)};
  }
  // For a config file, --out is the folder of its run, as for the other verbs.
  const bool is_run = std::filesystem::is_directory(file);
  Arguments rest = arguments;
  const std::filesystem::path outputs = is_run ? std::exchange(rest.out, "") : "";
  Named named = read_named(rest, registry);
  if (!arguments.target.empty()) {
    named.config = evaluated_on(named.config, arguments.target, requested_by(arguments));
  }
  const auto checkpoint = chosen_checkpoint(named.config, named.folder);
  return {checkpoint,
          evaluate_checkpoint(named.config, checkpoint, registry, nullptr, outputs, predictions)};
}

}  // namespace

int64_t rank_of_process() {
  return world_of(process_environment(), "tcp://localhost:29500").rank;  // the address is not used
}

namespace {

void print_evaluated(const Arguments& arguments, const std::filesystem::path& checkpoint,
                     const Evaluated& evaluated) {
  const EvaluationReport& report = evaluated.report;
  const auto& sample = evaluated.sample;
  const auto& names = evaluated.class_names;
  if (arguments.json) {
    nlohmann::ordered_json json{
        {"checkpoint", checkpoint.string()}, {"step", report.step}, {"samples", report.samples}};
    if (report.averaged) json["weights"] = "averaged";
    for (const auto& [name, value] : report.values) json["evaluate." + name] = value;
    if (sample) json["sample"] = *sample;
    const auto more = parse_ordered_json(evaluation_json(report, names));
    for (const char* key : {"auroc_error", "classes", "confusion_matrix"}) {
      if (more.contains(key) && !more[key].empty()) json[key] = more[key];
    }
    std::cout << json_text(json) << "\n";
    return;
  }
  if (arguments.quiet) return;
  std::cout << checkpoint.string() << ", " << report.samples << " samples"
            << (report.averaged ? ", averaged weights" : "");
  for (const auto& [name, value] : report.values) std::cout << ", " << name << " " << shown(value);
  std::cout << "\n" << confusion_markdown(report, names) << classes_markdown(report, names);
  if (sample) std::cout << "sample:\n" << *sample << "\n";
}

}  // namespace

int eval(const Arguments& arguments, const Registry& registry) {
  const auto [checkpoint, evaluated] = evaluated_of(arguments, registry);
  if (rank_of_process() != 0) return 0;
  print_evaluated(arguments, checkpoint, evaluated);
  if (!evaluated.unwritten.empty()) throw InputError(evaluated.unwritten);
  return 0;
}

}  // namespace tanren::cli
