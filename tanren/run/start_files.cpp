#include "tanren/run/start_files.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/config/filled_keys.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/model/torchscript.h"

#include <string>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kModel = "start.toml";
constexpr const char* kTokenizer = "tokenizer";
constexpr const char* kPackage = "package";
constexpr const char* kScript = "TorchScript file";

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

// The text of the table in start.toml that holds the checksum of this sort of program, up to the
// digits.
std::string table_of(const std::string& sort) {
  return std::string("[") + (sort == kPackage ? "package" : "torchscript") + "]\nchecksum = \"";
}

std::optional<ModelProgram> kept_program(const std::string& text) {
  for (const char* sort : {kPackage, kScript}) {
    const std::string table = table_of(sort);
    const size_t place = text.find(table);
    if (place == std::string::npos) continue;
    const size_t begin = place + table.size();
    return ModelProgram{sort, text.substr(begin, text.find('"', begin) - begin)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ModelProgram> program_of(const ModelOptions& model, const Task& task) {
  if (task.facts.graph) return ModelProgram{kPackage, task.facts.graph->checksum};
  const std::string script = script_checksum(*task.module);
  if (!script.empty()) return ModelProgram{kScript, script};
  return program_of(model);
}

std::optional<ModelProgram> program_of(const ModelOptions& model) {
  const bool is_package = model.kind == "package";
  if (model.path.empty() || (!is_package && model.kind != "torchscript")) return std::nullopt;
  const fs::path path = model.path, file = is_package ? path / "manifest.json" : path;
  std::error_code none;
  if (!fs::is_regular_file(file, none)) return std::nullopt;
  return ModelProgram{is_package ? kPackage : kScript, hash_text(content_hash(read_file(file)))};
}

void keep_start(const fs::path& folder, const RunConfig& asked, const ModelOptions& filled,
                const std::optional<ModelProgram>& program, const DataInfo& train) {
  const std::string keys = filled_keys(asked.model, filled);
  std::string text;
  if (!keys.empty()) {
    text = "# What model.from_hf gave; read instead of it when the run resumes.\n" + keys;
  }
  if (program) {
    text += "# The " + program->sort + " that the run goes on with.\n" + table_of(program->sort) +
            program->checksum + "\"\n";
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

void check_same_program(const fs::path& folder, const std::optional<ModelProgram>& program) {
  std::error_code none;
  if (!program || folder.empty() || !fs::exists(folder / kModel, none)) return;
  const auto kept = kept_program(read_file(folder / kModel));
  if (!kept || kept->checksum == program->checksum) return;
  throw ConfigError(fmt::format(
      "[run] {0} began with the {1} of checksum {2}, and the {3} in model.path has {4}; put the "
      "first one back, or start anew with model.init_from = \"{0}\" and another run.name or --out",
      folder.string(), kept->sort, one_line(kept->checksum), program->sort, program->checksum));
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
