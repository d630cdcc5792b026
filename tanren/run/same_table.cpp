#include "tanren/run/same_table.h"

#include "tanren/base/error.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/run/origin.h"

#include <algorithm>
#include <optional>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// The value of a fact; empty: there is none.
std::string fact_of(const Facts& facts, const std::string& name) {
  const auto found = std::find_if(facts.begin(), facts.end(),
                                  [&](const auto& fact) { return fact.first == name; });
  return found == facts.end() ? "" : found->second;
}

}  // namespace

void check_same_table(const RunConfig& config, const Dataset& train, const fs::path& checkpoint,
                      const std::string& verb) {
  if (config.data.train.kind != "csv") return;
  std::optional<fs::path> step = checkpoint;
  if (!fs::is_directory(checkpoint)) {
    step = latest_checkpoint(checkpoint.parent_path() / "checkpoints");
  }
  if (!step) return;
  const Facts saved = read_origin(*step).data;
  if (saved.empty()) return;
  const Facts now = data_facts(train, nullptr);
  for (const char* name :
       {"columns and what was measured of data.train", "class names of data.train"}) {
    if (fact_of(saved, name) == fact_of(now, name)) continue;
    throw DataError("[" + verb + "] the " + name + " (" + config.data.train.path +
                    ") are not those that " + step->string() +
                    " was trained with; put that table back, or take the "
                    "model.tanren.safetensors of a finished run");
  }
}

}  // namespace tanren
