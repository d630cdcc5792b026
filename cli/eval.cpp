#include "tanren/checkpoint/checkpoint.h"
#include "tanren/metrics/evaluation_file.h"
#include "tanren/run/run.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>

#include <iostream>

namespace tanren::cli {

int eval(const Arguments& arguments, const Registry& registry) {
  const Named named = read_named(arguments, registry);
  const auto checkpoint = chosen_checkpoint(named.config, named.folder);
  const auto [report, sample] = evaluate_checkpoint(named.config, checkpoint, registry, nullptr);
  if (arguments.json) {
    nlohmann::ordered_json json{
        {"checkpoint", checkpoint.string()}, {"step", report.step}, {"samples", report.samples}};
    if (report.averaged) json["weights"] = "averaged";
    for (const auto& [name, value] : report.values) json["evaluate." + name] = value;
    if (sample) json["sample"] = *sample;
    const auto more = nlohmann::ordered_json::parse(evaluation_json(report));
    for (const char* key : {"auroc_error", "classes", "confusion_matrix"}) {
      if (more.contains(key) && !more[key].empty()) json[key] = more[key];
    }
    std::cout << json.dump() << "\n";
    return 0;
  }
  std::cout << checkpoint.string() << ", " << report.samples << " samples"
            << (report.averaged ? ", averaged weights" : "");
  for (const auto& [name, value] : report.values) std::cout << ", " << name << " " << shown(value);
  std::cout << "\n" << confusion_markdown(report);
  if (sample) std::cout << "sample:\n" << *sample << "\n";
  return 0;
}

}  // namespace tanren::cli
