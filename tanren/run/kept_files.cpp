#include "tanren/run/kept_files.h"

#include "tanren/run/run_folder.h"

namespace tanren {

namespace fs = std::filesystem;

namespace {

bool is_same_file(const fs::path& one, const fs::path& other) {
  std::error_code none;
  if (fs::equivalent(one, other, none)) return true;
  return fs::absolute(one, none).lexically_normal() == fs::absolute(other, none).lexically_normal();
}

}  // namespace

std::vector<KeptFile> files_of_model(const fs::path& model) {
  std::vector<KeptFile> files{{model, "is the model"}};
  std::error_code none;
  if (!fs::exists(model / "config.toml", none)) return files;
  add_data(recorded_config(model).data, "belongs to the data of the model's run", files);
  return files;
}

void add_data(const DataOptions& data, const std::string& what, std::vector<KeptFile>& files) {
  for (const SourceOptions* source : {&data.train, &data.eval}) {
    const bool is_pictures = source->kind == "images" || source->kind == "pairs";
    const InFolder inside = is_pictures ? InFolder::all_but_logs : InFolder::nothing;
    if (!source->path.empty()) files.push_back({source->path, what, inside});
    if (!source->tokenizer.empty()) files.push_back({source->tokenizer, what});
  }
}

std::string kept_as(const fs::path& written, const std::vector<KeptFile>& files) {
  std::error_code none;
  for (const KeptFile& file : files) {
    if (is_same_file(written, file.path)) return file.what;
    // A new table may lie in a kept folder. `inside` decides which files it may replace there.
    const bool holds = fs::is_directory(file.path, none) && lies_in(written, file.path);
    if (!holds || !fs::exists(written, none)) continue;
    const std::string name = written.filename().string();
    const bool is_log = name.starts_with("log") || name.starts_with("incidents");
    const bool is_kept = file.inside == InFolder::nothing ||
                         (file.inside == InFolder::all_but_logs && is_log) ||
                         written.extension() == ".safetensors";
    if (is_kept) return file.what;
  }
  return "";
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  std::error_code none;
  const fs::path inner = fs::weakly_canonical(fs::absolute(file, none), none);
  const fs::path outer = fs::weakly_canonical(fs::absolute(folder, none), none);
  if (inner.empty() || outer.empty()) return false;
  const fs::path way = inner.lexically_relative(outer);
  return !way.empty() && *way.begin() != "..";
}

}  // namespace tanren
