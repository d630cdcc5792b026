#include "tanren/checkpoint/checkpoint.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/safetensors.h"
#include "tanren/checkpoint/values_json.h"

#define XXH_INLINE_ALL
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <charconv>

namespace tanren {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kMarker = "COMPLETE";
constexpr const char* kTemporary = ".writing-";  // prefix of a folder that is not complete
constexpr int kFormat = 1;

std::string checksum(const std::string& bytes) {
  const auto hash = XXH3_64bits(bytes.data(), bytes.size());
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

// The step of a folder called step-<n>; -1 for any other.
int64_t step_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (name.rfind("step-", 0) != 0) return -1;
  int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + 5, end, step);
  return result.ec == std::errc() && result.ptr == end ? step : -1;
}

std::vector<fs::path> complete_ones(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (step_of(entry.path()) >= 0 && fs::exists(entry.path() / kMarker)) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return step_of(a) < step_of(b); });
  return found;
}

void remove_old(const fs::path& folder, int64_t keep, const fs::path& newest) {
  auto all = complete_ones(folder);
  const auto surplus = static_cast<int64_t>(all.size()) - std::max<int64_t>(keep, 1);
  for (int64_t i = 0; i < surplus; ++i) {
    if (all[i] == newest) continue;
    // The marker goes first: a half-removed folder is no checkpoint.
    std::error_code ignored;
    fs::remove(all[i] / kMarker, ignored);
    fs::remove_all(all[i], ignored);
  }
}

void write_files(const fs::path& folder, const Snapshot& snapshot) {
  write_safetensors(folder / "model.safetensors", snapshot.model.tensors, {{"format", "pt"}});
  write_safetensors(folder / "optimizer.safetensors", snapshot.optimizer.tensors);
  write_safetensors(folder / "random.safetensors", snapshot.run.tensors);
  const Json state{{"run", values_to_json(snapshot.run.values)},
                   {"optimizer", values_to_json(snapshot.optimizer.values)},
                   {"model", values_to_json(snapshot.model.values)}};
  write_file(folder / "state.json", state.dump(1) + "\n");
  write_file(folder / "config.toml", snapshot.config_toml);
  write_file(folder / "plan.txt", snapshot.plan_text);
  Json files = Json::object();
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string bytes = read_file(entry.path());
    files[entry.path().filename().string()] = {{"bytes", bytes.size()}, {"xxh3", checksum(bytes)}};
  }
  const Json manifest{{"format", kFormat}, {"tanren", TANREN_VERSION}, {"files", files}};
  write_file(folder / "manifest.json", manifest.dump(1) + "\n");
  write_file(folder / kMarker, checksum(manifest.dump()) + "\n");
}

// The manifest's files are there, as long as they were, with the bytes they had.
void verify(const fs::path& folder) {
  const auto fail = [&](const std::string& file, const std::string& what) {
    throw CheckpointError("[checkpoint] " + (folder / file).string() + " " + what +
                          "; use an older step folder, or a copy of this one");
  };
  if (!fs::exists(folder / kMarker)) {
    throw CheckpointError("[checkpoint] " + folder.string() +
                          " is no complete checkpoint (no marker in it); use another step folder");
  }
  for (const char* file : {"manifest.json", "state.json", "model.safetensors",
                           "optimizer.safetensors", "random.safetensors"}) {
    if (!fs::exists(folder / file)) fail(file, "is missing");
  }
  const auto manifest = Json::parse(read_file(folder / "manifest.json"), nullptr, false);
  if (!manifest.is_object() || !manifest.contains("files")) fail("manifest.json", "is damaged");
  if (manifest.value("format", 0) != kFormat) {
    fail("manifest.json", "has format " + std::to_string(manifest.value("format", 0)) +
                              ", this program reads " + std::to_string(kFormat));
  }
  for (const auto& [file, facts] : manifest["files"].items()) {
    if (!fs::exists(folder / file)) fail(file, "is missing");
    const std::string bytes = read_file(folder / file);
    if (bytes.size() != facts.value("bytes", uint64_t{0})) {
      fail(file, "has " + std::to_string(bytes.size()) + " bytes, the manifest says " +
                     std::to_string(facts.value("bytes", uint64_t{0})));
    }
    if (checksum(bytes) != facts.value("xxh3", "")) fail(file, "has changed (checksum differs)");
  }
}

}  // namespace

fs::path write_checkpoint(const fs::path& folder, int64_t step, const Snapshot& snapshot,
                          int64_t keep) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw RunError("[checkpoint] cannot make " + folder.string() + " (" + error.message() +
                   "); check its rights and free space");
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto name = entry.path().filename().string();
    if (name.rfind(kTemporary, 0) == 0) fs::remove_all(entry.path(), error);  // of a dead writer
  }
  const fs::path target = folder / ("step-" + std::to_string(step));
  const fs::path temporary = folder / (kTemporary + std::to_string(step));
  try {
    fs::create_directory(temporary);
    write_files(temporary, snapshot);
    if (fs::exists(target)) {
      // Same step again (only skipped attempts in between): swap, so that one is always whole.
      const fs::path old = folder / (std::string(kTemporary) + "old");
      fs::rename(target, old);
      fs::rename(temporary, target);
      fs::remove_all(old, error);
    } else {
      fs::rename(temporary, target);
    }
    sync_folder(folder);
  } catch (const fs::filesystem_error& failure) {
    fs::remove_all(temporary, error);
    throw RunError(std::string("[checkpoint] cannot write ") + target.string() + " (" +
                   failure.code().message() + "); check its folder's rights and free space");
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  remove_old(folder, keep, target);
  return target;
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder) {
  const auto all = complete_ones(folder);
  if (all.empty()) return std::nullopt;
  return all.back();
}

Snapshot read_checkpoint(const fs::path& step_folder) {
  verify(step_folder);
  Snapshot snapshot;
  snapshot.model.tensors = read_safetensors(step_folder / "model.safetensors").tensors;
  snapshot.optimizer.tensors = read_safetensors(step_folder / "optimizer.safetensors").tensors;
  snapshot.run.tensors = read_safetensors(step_folder / "random.safetensors").tensors;
  const auto state = Json::parse(read_file(step_folder / "state.json"), nullptr, false);
  for (const char* part : {"run", "optimizer", "model"}) {
    if (!state.is_object() || !state.contains(part)) {
      throw CheckpointError("[checkpoint] " + (step_folder / "state.json").string() +
                            " lacks the part " + part + "; use another step folder");
    }
  }
  snapshot.run.values = values_from_json(state["run"]);
  snapshot.optimizer.values = values_from_json(state["optimizer"]);
  snapshot.model.values = values_from_json(state["model"]);
  snapshot.config_toml = read_file(step_folder / "config.toml");
  snapshot.plan_text = read_file(step_folder / "plan.txt");
  return snapshot;
}

}  // namespace tanren
