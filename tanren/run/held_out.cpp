#include "tanren/run/held_out.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/run/origin.h"
#include "tanren/run/run_folder.h"

#include <algorithm>
#include <optional>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// Describes the first fact that differs; empty: none does. Facts that `saved` lacks are skipped.
std::string other_data(const Facts& saved, const Facts& now, const fs::path& checkpoint) {
  for (const auto& [name, value] : now) {
    const auto before = std::find_if(saved.begin(), saved.end(), [&name = name](const auto& fact) {
      return fact.first == name;
    });
    if (before == saved.end() || before->second == value) continue;
    return name.starts_with("samples of ")
               ? fmt::format("{} {}, {} was made with {}", value, name, checkpoint.string(),
                             before->second)
               : fmt::format("{} are not those that {} was made with", name, checkpoint.string());
  }
  return "";
}

}  // namespace

void check_held_out(const RunConfig& config, const Datasets& datasets, const fs::path& checkpoint) {
  const bool is_step = fs::is_directory(checkpoint);
  const fs::path run = checkpoint.parent_path();
  std::optional<fs::path> step = checkpoint;
  if (!is_step) step = latest_checkpoint(run / "checkpoints");
  const double before = recorded_config(is_step ? checkpoint : run).data.split;
  if (before != config.data.split) {
    throw ConfigError(fmt::format(
        "[eval] data.split is {}, and {} was trained with {}: this is not the part that "
        "was kept from its training; take the same data.split, or name a file to "
        "evaluate on",
        to_text(config.data.split), checkpoint.string(), to_text(before)));
  }
  if (!step) {
    log(
        fmt::format("[eval] {} has no checkpoint, so it is not known whether its data are those of "
                    "its training",
                    run.string()));
    return;
  }
  const Facts now = data_facts(*datasets.train, datasets.eval.get());
  const std::string other = other_data(read_origin(*step).data, now, *step);
  if (other.empty()) return;
  throw DataError(
      fmt::format("[eval] {}, so evaluation may get rows that it was trained on; put "
                  "these data back, or name a file to evaluate on",
                  other));
}

}  // namespace tanren
