#include "tanren/checkpoint/weights_index.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/formats/safetensors.h"

#include <nlohmann/json.hpp>

#include <map>
#include <set>

namespace tanren {

namespace fs = std::filesystem;
using IndexJson = nlohmann::ordered_json;

namespace {

constexpr size_t kLongestName = 255;  // of a file, on Linux
constexpr const char* kWeightMap = "weight_map";

}  // namespace

WeightsFile read_index(const fs::path& path) {
  const auto fail = [&](const std::string& what) {
    throw CheckpointError("[checkpoint] " + path.string() + ": " + one_line(what) +
                          "; use a whole copy of the index and its files");
  };
  const auto json = parse_ordered_json(read_file(path));
  if (json.is_discarded() || !json.is_object() || !json.contains(kWeightMap) ||
      !json[kWeightMap].is_object()) {
    fail("it is no index of weights (no weight_map)");
  }
  std::map<std::string, std::string> file_of;  // by tensor
  std::set<std::string> files;
  for (const auto& [name, file] : json[kWeightMap].items()) {
    if (!file.is_string()) fail("tensor " + name + " has no file");
    const std::string text = file.get<std::string>();
    if (text.find('/') != std::string::npos) fail("file " + text + " lies in another folder");
    if (text != one_line(text) || text.size() > kLongestName ||
        fs::path(text).extension() == ".json" || !fs::is_regular_file(path.parent_path() / text)) {
      fail("file " + text + " is not there, or no file of weights");
    }
    files.insert(text);
    file_of[name] = text;
  }
  std::map<std::string, at::Tensor> found;
  for (const std::string& file : files) {
    const auto part = read_weights(path.parent_path() / file);
    for (const auto& [name, tensor] : part.content.tensors) {
      const auto place = file_of.find(name);
      if (place == file_of.end()) {
        fail("tensor " + name + " of " + file + " is not in the index");
      } else if (place->second != file) {
        fail("tensor " + name + " is in " + file + ", too; the index has it in " + place->second);
      }
      found.emplace(name, tensor);
    }
  }
  WeightsFile all;
  all.kind = fmt::format("{} files by their index", files.size());
  for (const auto& item : json[kWeightMap].items()) {
    const auto tensor = found.find(item.key());
    if (tensor == found.end()) fail("tensor " + item.key() + " is in none of its files");
    all.content.tensors.set(item.key(), tensor->second);
  }
  return all;
}

void write_index(const fs::path& path, const std::vector<std::string>& files,
                 const std::vector<std::string>& names) {
  std::map<std::string, std::string> file_of;  // by tensor
  uint64_t bytes = 0;
  for (const std::string& file : files) {
    for (const auto& [name, tensor] : read_safetensors(path.parent_path() / file).tensors) {
      const auto [place, is_new] = file_of.emplace(name, file);
      if (!is_new) {
        throw RunError(fmt::format("[checkpoint] {} is in {} and in {}; one rank alone writes it",
                                   name, place->second, file));
      }
      bytes += tensor.nbytes();
    }
  }
  IndexJson map = IndexJson::object();
  for (const std::string& name : names) {
    const auto place = file_of.find(name);
    if (place == file_of.end()) continue;
    map[name] = place->second;
    file_of.erase(place);
  }
  for (const auto& [name, file] : file_of) map[name] = file;
  const IndexJson index{{"metadata", {{"total_size", bytes}}}, {kWeightMap, map}};
  write_file(path, exact_json_text(index, 1) + "\n");
}

}  // namespace tanren
