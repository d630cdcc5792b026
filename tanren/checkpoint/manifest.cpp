#include "tanren/checkpoint/manifest.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"

#define XXH_INLINE_ALL
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <map>
#include <memory>

namespace tanren {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kManifest = "manifest.json";
constexpr int kFormat = 1;
constexpr size_t kChunk = size_t{1} << 20;

struct Facts {
  uint64_t bytes = 0;
  std::string checksum;  // 16 hexadecimal digits
};

// Reads piece by piece: a model may be larger than the free memory.
Facts facts_of(const fs::path& path) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  OpenFile file = open_file(path);
  std::string chunk(kChunk, '\0');
  Facts facts;
  while (file.stream) {
    const size_t got = file.read(chunk.data(), chunk.size());
    XXH3_64bits_update(state.get(), chunk.data(), got);
    facts.bytes += got;
  }
  facts.checksum = hash_text(XXH3_64bits_digest(state.get()));
  return facts;
}

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw CheckpointError("[checkpoint] " + file.string() + " " + what +
                        "; use an older step folder, or a copy of this one");
}

Facts checked_facts(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) refuse(path, "is missing");
  return facts_of(path);
}

// The manifest's list. The file's checksum is verified first, so every irregularity is an error.
std::map<std::string, Facts> read_manifest(const fs::path& path) {
  const Json json = parse_ordered_json(read_file(path));
  if (!json.is_object() || !json.contains("format") || !json["format"].is_number_integer() ||
      !json.contains("files") || !json["files"].is_object()) {
    refuse(path, "is no manifest");
  }
  if (json["format"] != kFormat) {
    refuse(path,
           fmt::format("has format {}, this program reads {}", json_text(json["format"]), kFormat));
  }
  std::map<std::string, Facts> files;
  for (const auto& [name, facts] : json["files"].items()) {
    if (!facts.is_object() || !facts.contains("bytes") || !facts["bytes"].is_number_unsigned() ||
        !facts.contains("xxh3") || !facts["xxh3"].is_string() ||
        name.find('/') != std::string::npos) {
      refuse(path, "describes " + name + " wrongly");
    }
    files[name] = {facts["bytes"].get<uint64_t>(), facts["xxh3"].get<std::string>()};
  }
  return files;
}

// Reads the manifest after comparing its checksum with the marker's.
std::map<std::string, Facts> verified_list(const fs::path& folder) {
  if (checked_facts(folder / kManifest).checksum + "\n" != read_file(folder / kMarker)) {
    refuse(folder / kManifest, "has changed (its checksum is not the marker's)");
  }
  return read_manifest(folder / kManifest);
}

}  // namespace

void write_manifest(const fs::path& folder) {
  std::map<std::string, Facts> sorted;
  for (const auto& entry : fs::directory_iterator(folder)) {
    sorted[entry.path().filename().string()] = facts_of(entry.path());
  }
  Json files = Json::object();
  for (const auto& [name, facts] : sorted) {
    files[name] = {{"bytes", facts.bytes}, {"xxh3", facts.checksum}};
  }
  const Json manifest{{"format", kFormat}, {"tanren", TANREN_VERSION}, {"files", files}};
  write_file(folder / kManifest, exact_json_text(manifest, 1) + "\n");
  write_file(folder / kMarker, facts_of(folder / kManifest).checksum + "\n");
}

std::string marker_of(const fs::path& folder) {
  const fs::path marker = folder / kMarker;
  const auto is_gone = [&] {
    std::error_code none;
    return fs::status(marker, none).type() == fs::file_type::not_found;
  };
  if (is_gone()) return "";
  std::string text;
  try {
    text = read_file(marker);
  } catch (const InputError& error) {
    if (is_gone()) return "";  // removed since
    throw CheckpointError(error.what());
  }
  if (text.empty()) refuse(marker, "is empty");
  return text;
}

bool is_complete(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / kMarker, error);
}

std::vector<std::string> listed_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& [name, facts] : verified_list(folder)) names.push_back(name);
  return names;
}

void verify_manifest(const fs::path& folder, const std::vector<std::string>& required,
                     const std::function<bool(const std::string&)>& skips) {
  if (!is_complete(folder)) {
    throw CheckpointError("[checkpoint] " + folder.string() +
                          " is no complete checkpoint (no marker in it); use another step folder");
  }
  const auto files = verified_list(folder);
  for (const auto& name : required) {
    if (files.count(name) == 0) refuse(folder / kManifest, "does not list " + name);
  }
  for (const auto& [name, facts] : files) {
    std::error_code error;
    const bool skipped = skips && skips(name) && fs::is_regular_file(folder / name, error);
    const Facts found = skipped ? Facts{fs::file_size(folder / name, error), facts.checksum}
                                : checked_facts(folder / name);
    if (found.bytes != facts.bytes) {
      refuse(folder / name,
             fmt::format("has {} bytes, the manifest says {}", found.bytes, facts.bytes));
    }
    if (found.checksum != facts.checksum) {
      refuse(folder / name, "has changed (checksum " + found.checksum + ", the manifest says " +
                                facts.checksum + ")");
    }
  }
}

}  // namespace tanren
