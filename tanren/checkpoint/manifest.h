// The manifest of a step folder: size and XXH3 checksum of each of its files; and the marker, which
// is written last and holds the manifest's own checksum.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tanren {

// The marker: the file that is written last of a save.
inline constexpr const char* kMarker = "COMPLETE";

// Lists every file now in `folder` in manifest.json, then writes the marker COMPLETE.
void write_manifest(const std::filesystem::path& folder);
// True if the marker is there, whatever the state of the rest.
bool is_complete(const std::filesystem::path& folder);
// Checks marker, manifest, and every listed file; `required` must be among them. CheckpointError
// naming the first file that is missing, cut off or changed. Of files for which `skips` is true only the
// size is looked at: another rank reads them.
void verify_manifest(const std::filesystem::path& folder, const std::vector<std::string>& required,
                     const std::function<bool(const std::string&)>& skips = {});

}  // namespace tanren
