// Whether a package's code may be loaded: it was compiled for this program and machine, and its
// files are those of its manifest. Torch-free. Called by package.cpp, before it loads anything.
#pragma once

#include "tanren/model/package_manifest.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// What a package is compared with.
struct PackageHost {
  std::string torch, machine;
  std::vector<std::string> processor_flags;
};
// Flags of this machine's first processor.
std::vector<std::string> processor_flags(const std::filesystem::path& cpuinfo = "/proc/cpuinfo");
// ConfigError naming what the package wants and the host lacks.
void check_package_host(const PackageManifest& manifest, const PackageHost& host,
                        const std::string& package);
// ConfigError for a file of the manifest that is missing, or has other bytes.
void check_package_files(const PackageManifest& manifest, const std::filesystem::path& package);
// ConfigError if `file` no longer holds the `manifest` that was read. An export renames whole
// folders, so what was read between belongs to the manifest if that is still there afterwards.
void check_package_stays(const std::string& manifest, const std::filesystem::path& file);

}  // namespace tanren
