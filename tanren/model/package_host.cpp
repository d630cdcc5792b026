#include "tanren/model/package_host.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace tanren {

namespace fs = std::filesystem;

std::vector<std::string> processor_flags(const fs::path& cpuinfo) {
  std::ifstream lines(cpuinfo);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    const std::string_view key = trimmed(std::string_view(line).substr(0, colon));
    if (colon == std::string::npos || (key != "flags" && key != "Features")) continue;
    std::istringstream words(line.substr(colon + 1));
    std::vector<std::string> flags;
    for (std::string word; words >> word;) flags.push_back(word);
    return flags;
  }
  return {};
}

void check_package_host(const PackageManifest& manifest, const PackageHost& host,
                        const std::string& package) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(one_line("[model] " + package + " " + what));
  };
  if (manifest.torch != host.torch) {
    refuse(
        fmt::format("is compiled for libtorch {}, and this program runs {}; export it with "
                    "torch {}",
                    manifest.torch, host.torch, host.torch));
  }
  if (manifest.machine != host.machine) {
    refuse(fmt::format("is compiled for {}, and this machine is {}; export it on such a machine",
                       manifest.machine, host.machine));
  }
  std::vector<std::string> missing;
  for (const std::string& flag : manifest.processor_flags) {
    const auto& own = host.processor_flags;
    if (std::find(own.begin(), own.end(), flag) == own.end()) missing.push_back(flag);
  }
  if (!missing.empty()) {
    refuse(
        fmt::format("uses instructions that this processor lacks ({}); export it on a processor "
                    "like this one",
                    join(missing)));
  }
}

void check_package_files(const PackageManifest& manifest, const fs::path& package) {
  for (const auto& [name, sum] : manifest.files) {
    const fs::path file = package / name;
    std::error_code none;
    if (!fs::is_regular_file(file, none)) {
      throw ConfigError(one_line("[model] " + file.string() +
                                 " is missing; copy the whole package, or export it again"));
    }
    const std::string found = hash_text(content_hash(read_file(file)));
    if (found == sum) continue;
    throw ConfigError(one_line(fmt::format(
        "[model] {} has the checksum {}, and the manifest says {}: the file was changed, and is "
        "not loaded; export the package again",
        file.string(), found, sum)));
  }
  for (const char* stem : {"train", "predict"}) {
    const std::string name = std::string(stem) + ".json";
    if (manifest.files.count(name) > 0 || !fs::exists(package / name)) continue;
    throw ConfigError(one_line("[model] " + (package / name).string() +
                               " is not in the manifest, and libtorch would read it; remove it"));
  }
}

void check_package_stays(const std::string& manifest, const fs::path& file) {
  std::error_code none;
  if (fs::is_regular_file(file, none) && read_file(file) == manifest) return;
  throw ConfigError(one_line("[model] " + file.string() +
                             " was exchanged while its package was loaded; start again"));
}

}  // namespace tanren
