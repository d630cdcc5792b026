#include "tanren/predict/check_paths.h"

#include "tanren/base/error.h"
#include "tanren/predict/growing_file.h"
#include "tanren/run/run_folder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

bool is_same(const fs::path& one, const fs::path& other) {
  std::error_code none;
  if (fs::equivalent(one, other, none)) return true;
  return fs::absolute(one, none).lexically_normal() == fs::absolute(other, none).lexically_normal();
}

[[noreturn]] void refuse_out(const fs::path& out, const std::string& what) {
  throw ConfigError("[predict] " + out.string() + " " + what + "; name another file with --out");
}

// What the model's run is made from, with a word for each.
std::vector<std::pair<fs::path, std::string>> files_of_model(const fs::path& model) {
  std::vector<std::pair<fs::path, std::string>> files{{model, "is the model"}};
  std::error_code none;
  if (!fs::exists(model / "config.toml", none)) return files;
  const RunConfig run = recorded_config(model);
  for (const SourceOptions* source : {&run.data.train, &run.data.eval}) {
    for (const std::string& path : {source->path, source->tokenizer}) {
      if (!path.empty()) files.emplace_back(path, "belongs to the data of the model's run");
    }
  }
  return files;
}

void check_out(const fs::path& out, const fs::path& written, const PredictInput& input) {
  std::error_code none;
  std::vector<std::pair<fs::path, std::string>> kept = files_of_model(input.model);
  if (input.source != "-") kept.emplace_back(input.source, "is what is to be predicted");
  for (const auto& [path, what] : kept) {
    if (is_same(written, path)) refuse_out(out, what);
    // Tables may lie beside what is read, but nothing there is replaced by one.
    const bool is_data = path != input.source;
    const bool holds = fs::is_directory(path, none) && lies_in(written, path);
    if (!holds || !fs::exists(written, none)) continue;
    const bool is_log = is_data && written.filename().string().starts_with("log");
    if (is_log || written.extension() == ".safetensors") refuse_out(out, what);
  }
}

}  // namespace

bool is_stream(const fs::path& source) {
  std::error_code none;
  const fs::file_status status = fs::status(source, none);
  return source == "-" ||
         (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status));
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  std::error_code none;
  const fs::path inner = fs::weakly_canonical(fs::absolute(file, none), none);
  const fs::path outer = fs::weakly_canonical(fs::absolute(folder, none), none);
  if (inner.empty() || outer.empty()) return false;
  const fs::path way = inner.lexically_relative(outer);
  return !way.empty() && *way.begin() != "..";
}

void check_paths(const PredictInput& input, const fs::path& out, int64_t ranks) {
  std::error_code none;
  if (input.source != "-" && !fs::exists(input.source, none)) {
    throw InputError("[predict] there is no " + input.source.string() +
                     "; name the file or folder to predict on");
  }
  if (ranks > 1 && is_stream(input.source)) {
    throw ConfigError("[predict] " +
                      (input.source == "-" ? "standard input" : input.source.string()) +
                      " can be read by one process only; name a file, or predict without launch");
  }
  if (out.empty()) return;
  const fs::file_status status = fs::status(out, none);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    refuse_out(out, fs::is_directory(status) ? "is a folder" : "is no plain file");
  }
  check_out(out, out, input);
  for (const auto& part : GrowingFile::parts_of(out)) check_out(out, part, input);
}

fs::path predictions_file_of(const fs::path& source) {
  if (source == "-") return {};
  std::string name = source.string();
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  fs::path plain = name;
  if (const fs::path last = plain.filename(); last == "." || last == ".." || name == "/") {
    std::error_code none;
    plain = fs::weakly_canonical(fs::absolute(plain, none), none);
  }
  std::error_code none;
  const bool is_folder = fs::is_directory(plain, none);
  const std::string stem = (is_folder ? plain.filename() : plain.stem()).string();
  return plain.parent_path() / (stem + (stem.empty() ? "" : ".") + "predictions.csv");
}

}  // namespace tanren
