#include "tanren/run/start_files.h"

#include "tanren/base/file.h"
#include "tanren/config/filled_keys.h"

#include <string>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "start.toml";
constexpr const char* kTokenizer = "tokenizer";

}  // namespace

void keep_start(const fs::path& folder, const RunConfig& asked, const ModelOptions& filled,
                const DataInfo& train) {
  const std::string keys = filled_keys(asked.model, filled);
  if (!keys.empty()) {
    write_file(folder / kModel,
               "# What model.from_hf gave; read instead of it when the run goes on.\n" + keys);
  }
  if (asked.data.train.tokenizer.empty() || train.tokenizer == nullptr) return;
  fs::create_directories(folder / kTokenizer);
  for (const auto& [name, text] : *train.tokenizer) write_file(folder / kTokenizer / name, text);
}

Pretrained take_start(const fs::path& folder, RunConfig& config) {
  std::error_code none;
  if (!folder.empty() && fs::is_directory(folder / kTokenizer, none)) {
    for (SourceOptions* source : {&config.data.train, &config.data.eval}) {
      if (!source->tokenizer.empty()) source->tokenizer = (folder / kTokenizer).string();
    }
  }
  const fs::path model = folder / kModel;
  if (config.model.from_hf.empty() || folder.empty() || !fs::exists(model, none)) {
    return resolve_model(config.model);
  }
  Pretrained kept{with_filled_keys(config.model, read_file(model), model.string()), {}};
  check_resolved(kept.model, config.model);
  return kept;
}

}  // namespace tanren
