// Whether a package's code may be loaded: it was compiled for this program and machine, and its
// files are those of its manifest. Torch-free. Called by package.cpp, before it loads anything.
#pragma once

#include "tanren/model/package_manifest.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// The program and machine that a package is compared with.
struct PackageHost {
  std::string torch, machine;
  std::vector<std::string> processor_flags;
};
// Flags of this machine's first processor.
std::vector<std::string> processor_flags(const std::filesystem::path& cpuinfo = "/proc/cpuinfo");
// ConfigError naming the package's requirement that the host does not meet.
void check_package_host(const PackageManifest& manifest, const PackageHost& host,
                        const std::string& package);
// ConfigError if a file of the manifest is missing or has another checksum, or if train.json or
// predict.json exists but is not in the manifest.
void check_package_files(const PackageManifest& manifest, const std::filesystem::path& package);
// ConfigError if `file` no longer holds the `manifest` that was read. An export replaces whole
// folders, so files read in the meantime belong to the manifest if it is still the same afterwards.
void check_package_stays(const std::string& manifest, const std::filesystem::path& file);

}  // namespace tanren
