#include "tanren/checkpoint/weights_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/one_line.h"
#include "tanren/base/safetensors.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/pt_file.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <set>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr size_t kLongestName = 255;  // of a file, on Linux

bool begins_with(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool is_torch_extension(const fs::path& path) {
  return path.extension() == ".pt" || path.extension() == ".pth" || path.extension() == ".bin";
}

WeightsFile read_index(const fs::path& path) {
  const auto fail = [&](const std::string& what) {
    throw CheckpointError("[checkpoint] " + path.string() + ": " + one_line(what) +
                          "; download the index and its files again");
  };
  const auto json = nlohmann::json::parse(read_file(path), nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("weight_map") ||
      !json["weight_map"].is_object()) {
    fail("it is no index of weights (no weight_map)");
  }
  std::set<std::string> files, wanted;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string()) fail("tensor " + name + " has no file");
    const std::string text = file.get<std::string>();
    if (text.find('/') != std::string::npos) fail("file " + text + " lies in another folder");
    if (text != one_line(text) || text.size() > kLongestName ||
        fs::path(text).extension() == ".json" || !fs::is_regular_file(path.parent_path() / text)) {
      fail("file " + text + " is not there, or no file of weights");
    }
    files.insert(text);
    wanted.insert(name);
  }
  WeightsFile all;
  all.kind = std::to_string(files.size()) + " files by their index";
  for (const auto& file : files) {
    const auto part = read_weights(path.parent_path() / file);
    for (const auto& [name, tensor] : part.content.tensors) {
      if (wanted.erase(name) == 0) fail("tensor " + name + " of " + file + " is not in the index");
      all.content.tensors.set(name, tensor);
    }
  }
  if (!wanted.empty()) fail("tensor " + *wanted.begin() + " is in none of its files");
  return all;
}

// The weights of a checkpoint's folder, or of a run folder's newest checkpoint.
fs::path in_folder(const fs::path& folder) {
  if (fs::exists(folder / "model.safetensors")) return folder / "model.safetensors";
  const auto checkpoint = latest_checkpoint(folder / "checkpoints");
  if (checkpoint) return *checkpoint / "model.safetensors";
  throw CheckpointError("[checkpoint] " + folder.string() +
                        " is a folder without model.safetensors or a complete checkpoint; name a "
                        "weights file or a run folder");
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

}  // namespace

WeightsFile read_weights(const fs::path& named) {
  const fs::path path = fs::is_directory(named) ? in_folder(named) : named;
  if (path.extension() == ".json") return read_index(path);
  std::array<char, 2> start{};
  open_file(path).stream.read(start.data(), start.size());
  const bool zip = start[0] == 'P' && start[1] == 'K';
  const bool pickle = start[0] == '\x80' && start[1] == '\x02';
  if (zip || pickle || is_torch_extension(path)) {
    auto file = read_pt(path);
    return {std::move(file.kind), std::move(file.content), std::move(file.opaque)};
  }
  WeightsFile file;
  file.kind = "safetensors";
  file.content.tensors = read_safetensors(path).tensors;
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
      result.remarks.push_back("took " + std::string(part.substr(0, part.size() - 1)) + " (" +
                               std::to_string(inside.size()) + " of " +
                               std::to_string(result.tensors.size()) + " tensors)");
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
