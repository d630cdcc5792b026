// The manifest of a step folder has the size and XXH3 checksum of each of its files. The marker is
// written last and holds the manifest's own checksum.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tanren {

// The marker: the last file that a save writes.
inline constexpr const char* kMarker = "COMPLETE";

// Lists every file now in `folder` in manifest.json, then writes the marker COMPLETE.
void write_manifest(const std::filesystem::path& folder);
// The marker's text, which differs between two saves of a step; empty if there is no marker.
// CheckpointError if it is empty or cannot be read.
std::string marker_of(const std::filesystem::path& folder);
// True if the marker exists; nothing else is checked.
bool is_complete(const std::filesystem::path& folder);
// The names of the files in the manifest of a complete folder. CheckpointError if the manifest's
// checksum is not the marker's.
std::vector<std::string> listed_files(const std::filesystem::path& folder);
// Checks marker, manifest, and every listed file; the files `required` must be listed.
// CheckpointError naming the first file that is missing, cut off or changed. If `skips` is true for
// a file, only its size is checked, because this caller does not read it or another rank verifies
// it.
void verify_manifest(const std::filesystem::path& folder, const std::vector<std::string>& required,
                     const std::function<bool(const std::string&)>& skips = {});

}  // namespace tanren
