#include "tanren/run/start_files.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/config/filled_keys.h"
#include "tanren/data/text/tokenizer.h"

#include <string>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "start.toml";
constexpr const char* kTokenizer = "tokenizer";

// Removes the tokenizer left by an earlier start that saved nothing, except for the files in
// `kept`. Does nothing if the config names this folder, or a file in it, as its tokenizer.
void remove_stale(const fs::path& folder, const DataOptions& data, const TokenizerFiles& kept) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) return;
  for (const SourceOptions* source : {&data.train, &data.eval}) {
    const fs::path named = source->tokenizer;
    if (named.empty()) continue;
    if (fs::equivalent(named, folder, none)) return;
    if (fs::equivalent(named.parent_path(), folder, none)) return;
  }
  for (const std::string& name : tokenizer_file_names()) {
    if (kept.count(name) == 0 && fs::is_regular_file(folder / name, none)) {
      fs::remove(folder / name);
    }
  }
  if (fs::is_empty(folder)) fs::remove(folder);
}

std::string checksum_line(const GraphFacts& graph) {
  return "checksum = \"" + graph.checksum + "\"\n";
}

}  // namespace

void keep_start(const fs::path& folder, const RunConfig& asked, const ModelOptions& filled,
                const TaskFacts& task, const DataInfo& train) {
  const std::string keys = filled_keys(asked.model, filled);
  std::string text;
  if (!keys.empty()) {
    text = "# What model.from_hf gave; read instead of it when the run resumes.\n" + keys;
  }
  if (task.graph) {
    text += "# The package that the run goes on with.\n[package]\n" + checksum_line(*task.graph);
  }
  if (text.empty()) {
    fs::remove(folder / kModel);
  } else {
    write_file(folder / kModel, text);
  }
  TokenizerFiles files;
  if (!asked.data.train.tokenizer.empty() && train.tokenizer != nullptr) files = *train.tokenizer;
  if (!files.empty()) fs::create_directories(folder / kTokenizer);
  for (const auto& [name, text] : files) write_file(folder / kTokenizer / name, text);
  remove_stale(folder / kTokenizer, asked.data, files);
}

void check_same_graph(const fs::path& folder, const TaskFacts& task) {
  std::error_code none;
  if (!task.graph || !fs::exists(folder / kModel, none)) return;
  const std::string text = read_file(folder / kModel);
  if (text.find("[package]\n") == std::string::npos) return;
  if (text.find(checksum_line(*task.graph)) != std::string::npos) return;
  throw ConfigError("[run] " + folder.string() +
                    " began with another package than the one in model.path, whose "
                    "checksum is " +
                    task.graph->checksum +
                    "; put the first one back, or start anew with "
                    "model.init_from = \"" +
                    folder.string() + "\" and another run.name or --out");
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
