#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/run/run.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>

#include <iostream>

namespace tanren::cli {

int eval(const Arguments& arguments, const ModelRegistry& models) {
  const Named named = read_named(arguments, models);
  const auto checkpoint = latest_checkpoint(named.folder / "checkpoints");
  if (!checkpoint) {
    throw CheckpointError("[eval] " + named.folder.string() +
                          " has no complete checkpoint; train first with tanren run");
  }
  const auto report = evaluate_checkpoint(named.config, *checkpoint, models, nullptr);
  if (arguments.json) {
    nlohmann::ordered_json json{
        {"checkpoint", checkpoint->string()}, {"step", report.step}, {"samples", report.samples}};
    for (const auto& [name, value] : report.values) json["evaluate." + name] = value;
    std::cout << json.dump() << "\n";
    return 0;
  }
  std::cout << checkpoint->string() << ", " << report.samples << " samples";
  for (const auto& [name, value] : report.values)
    std::cout << ", " << name << " " << to_text(value);
  std::cout << "\n";
  return 0;
}

}  // namespace tanren::cli
