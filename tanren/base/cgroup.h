// Where the kernel keeps the limits that this process lives under, and how its small files are read.
// Torch-free, no state. Called by plan (what a run may use), machine_memory.h and monitor (what is
// used of it).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The folders of this process's cgroup and of all above it, in each hierarchy, version 1 or 2,
// innermost first; some of them need not exist: inside a container the path that the kernel names
// may be missing, the roots then are there. `root` is where proc/ and sys/ lie.
std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root = "/");
// The first line of a small kernel file; empty if it cannot be read.
std::string kernel_line(const std::filesystem::path& path);
// The number that it holds alone; empty for anything else ("max").
std::optional<int64_t> kernel_number(const std::filesystem::path& path);
// Lines "key value" or "key:  value unit", by key without the colon; others are passed over.
std::map<std::string, int64_t> kernel_table(const std::filesystem::path& path);
// The cores that the folder's CPU quota allows; negative if it sets none.
double cgroup_cpu_quota(const std::filesystem::path& folder);

}  // namespace tanren
