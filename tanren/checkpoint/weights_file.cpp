#include "tanren/checkpoint/weights_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/checkpoint/manifest.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/checkpoint/weights_index.h"
#include "tanren/formats/pt_file.h"
#include "tanren/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kZipMagic("PK\x03\x04", 4);

bool begins_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool is_torch_extension(const fs::path& path) {
  return path.extension() == ".pt" || path.extension() == ".pth" || path.extension() == ".bin";
}

std::string first_bytes(const fs::path& path) {
  std::array<char, 9> start{};
  auto file = open_file(path);
  file.stream.read(start.data(), start.size());
  return {start.data(), static_cast<size_t>(file.stream.gcount())};
}

// Whether `start` is the length of a header and then its brace. The length may equal the magic
// bytes of another format. But a zip archive has its method where the brace is, and a pickle that
// torch wrote has no brace there.
bool is_safetensors(std::string_view start) {
  constexpr uint64_t kLongestHeader = 100'000'000;  // as the format has it
  uint64_t length = 0;
  if (start.size() < 9) return false;
  std::memcpy(&length, start.data(), sizeof length);
  return length >= 2 && length <= kLongestHeader && start[8] == '{';
}

bool is_zip_or_pickle(std::string_view start) {
  const bool pickle = start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;
  return pickle || begins_with(start, kZipMagic);
}

// A whole number among a file's metadata.
std::optional<int64_t> number_in(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  int64_t number = 0;
  if (found == metadata.end()) return std::nullopt;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool read = error == std::errc() && end == text.data() + text.size();
  return read ? std::optional(number) : std::nullopt;
}

// Whether the save was finished after the file was written.
bool is_later(const fs::path& save, const fs::path& file) {
  std::error_code no_save, no_file;
  const auto saved = fs::last_write_time(save / kMarker, no_save);
  const auto written = fs::last_write_time(file, no_file);
  return !no_save && !no_file && saved > written;
}

// Takes `prefix` off every name; false if some name lacks it.
bool strip(TensorMap& tensors, std::string_view prefix) {
  const bool all = std::all_of(tensors.begin(), tensors.end(), [&](const auto& item) {
    return begins_with(item.first, prefix) && item.first.size() > prefix.size();
  });
  if (tensors.empty() || !all) return false;
  TensorMap stripped;
  for (const auto& [name, tensor] : tensors) stripped.set(name.substr(prefix.size()), tensor);
  tensors = std::move(stripped);
  return true;
}

// The folder's model.safetensors, or the index of its parts if it has that alone.
fs::path model_in(const fs::path& folder) {
  const fs::path whole = folder / "model.safetensors", index = whole.string() + ".index.json";
  return !fs::exists(whole) && fs::exists(index) ? index : whole;
}

// Verifies the parts of a step folder's index against the manifest, because the index alone cannot
// show that a part belongs to another save.
void verify_parts(const fs::path& index) {
  const fs::path folder = index.parent_path();
  if (!is_complete(folder)) return;
  const std::string name = index.filename().string();
  const std::string start = name.substr(0, name.find('.')) + "-";
  verify_manifest(folder, {name}, [&](const std::string& file) {
    return file != name && !file.starts_with(start);
  });
}

}  // namespace

FolderWeights weights_of_folder(const fs::path& folder) {
  const fs::path exported = model_in(folder);
  const auto newest = latest_checkpoint(folder / "checkpoints");
  if (!newest && !fs::exists(exported)) {
    throw CheckpointError("[checkpoint] " + folder.string() +
                          " is a folder without model.safetensors or a complete checkpoint; name a "
                          "weights file or a run folder");
  }
  if (!newest) return {exported, ""};
  const fs::path of_newest = model_in(*newest);
  if (!fs::exists(exported)) return {of_newest, ""};
  if (exported.extension() == ".json") return {exported, ""};  // not ours
  const Metadata metadata = read_safetensors(exported).metadata;
  // A run may export its best step, so its metadata also have the last step of the run then,
  // run_step. Older exports have only their own step: the run continued if it saved after the
  // export.
  const auto come = number_in(metadata, "run_step"), of = number_in(metadata, "step");
  const int64_t step = step_of(*newest);
  const bool went_on = come ? step > *come : of && step > *of && is_later(*newest, exported);
  if (!went_on) return {exported, ""};
  std::string remark =
      fmt::format("took step-{}, to which the run went on after its model.safetensors of step {}",
                  step, come ? *come : *of);
  const auto kind = metadata.find("weights");
  if (kind != metadata.end() && kind->second == "averaged") {
    remark += fmt::format(" (its raw weights: the averaged ones are in its {})",
                          of_newest.extension() == ".json" ? "average.safetensors.index.json"
                                                           : "average.safetensors");
  }
  return {of_newest, remark};
}

NamedWeights read_state_dict(const fs::path& path) {
  FolderWeights found{path, ""};
  if (fs::is_directory(path)) found = weights_of_folder(path);
  NamedWeights weights;
  weights.file = read_weights(found.file);
  weights.state = state_dict_of(weights.file);
  if (!found.remark.empty()) {
    weights.state.remarks.insert(weights.state.remarks.begin(), found.remark);
  }
  return weights;
}

WeightsFile read_weights(const fs::path& named) {
  const fs::path path = fs::is_directory(named) ? weights_of_folder(named).file : named;
  if (path.extension() == ".json") {
    verify_parts(path);
    return read_index(path);
  }
  const std::string start = first_bytes(path);
  if (!is_safetensors(start) && (is_zip_or_pickle(start) || is_torch_extension(path))) {
    auto file = read_pt(path);
    return {std::move(file.kind), std::move(file.content), std::move(file.opaque)};
  }
  SafetensorsFile read = read_safetensors(path);
  WeightsFile file;
  file.kind = "safetensors";
  file.content.tensors = std::move(read.tensors);
  file.metadata = std::move(read.metadata);
  return file;
}

StateDict state_dict_of(const WeightsFile& file) {
  StateDict result{file.content.tensors, {}};
  constexpr std::array kParts = {"model_state_dict.", "state_dict.", "model.", "net.", "network."};
  if (file.kind == "checkpoint") {
    for (const std::string_view part : kParts) {
      TensorMap inside;
      for (const auto& [name, tensor] : result.tensors) {
        if (begins_with(name, part)) inside.set(name.substr(part.size()), tensor);
      }
      if (inside.empty()) continue;
      result.remarks.push_back(fmt::format("took {} ({} of {} tensors)",
                                           std::string(part.substr(0, part.size() - 1)),
                                           inside.size(), result.tensors.size()));
      result.tensors = std::move(inside);
      break;
    }
  }
  for (bool again = true; again;) {
    again = false;
    for (const char* prefix : {"module.", "_orig_mod."}) {
      if (!strip(result.tensors, prefix)) continue;
      result.remarks.push_back("took the prefix " + std::string(prefix) + " off every name");
      again = true;
    }
  }
  return result;
}

TensorMap renamed(const TensorMap& tensors,
                  const std::vector<std::pair<std::string, std::string>>& renames) {
  std::vector<std::string> names;
  for (const auto& item : tensors) names.push_back(item.first);
  for (const auto& [from, to] : renames) {
    size_t fitting = 0;
    for (auto& name : names) {
      const bool whole = name == from;
      if (!whole && !begins_with(name, from + ".")) continue;
      ++fitting;
      const std::string rest = whole ? "" : name.substr(from.size() + 1);
      name = to + (to.empty() || rest.empty() ? "" : ".") + rest;
    }
    if (fitting == 0) {
      throw CheckpointError("[checkpoint] rename " + from + "=" + to +
                            " fits no tensor; tanren convert FILE --list shows their names");
    }
  }
  TensorMap result;
  std::set<std::string> taken;
  size_t next = 0;
  for (const auto& item : tensors) {
    const auto& name = names[next++];
    if (name.empty() || !taken.insert(name).second) {
      throw CheckpointError("[checkpoint] after renaming, tensor " + item.first +
                            (name.empty() ? " has no name" : " is a second " + name) +
                            "; choose other names");
    }
    result.set(name, item.second);
  }
  return result;
}

void write_weights(const fs::path& path, const TensorMap& tensors) {
  if (path.extension() == ".safetensors") {
    write_safetensors(path, tensors, {{"format", "pt"}});
  } else if (is_torch_extension(path)) {
    write_pt(path, tensors);
  } else {
    throw ConfigError("[checkpoint] " + path.string() +
                      " says no format; end it in .safetensors, .pt, .pth or .bin");
  }
}

}  // namespace tanren
