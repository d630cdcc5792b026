// Finds the kernel's files with the limits of this process's cgroup, and reads such small files.
// Torch-free, no state. Called by plan (what a run may use), and by machine_memory.h and monitor
// (how much of it is used).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The folders of this process's cgroup and of its parents, in each hierarchy (version 1 or 2),
// innermost first. Some of the folders may not exist: inside a container, the path that the kernel
// names may be missing, while the roots exist. `root` is the folder that holds proc/ and sys/.
std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root = "/");
// The first line of a small kernel file; empty if it cannot be read.
std::string kernel_line(const std::filesystem::path& path);
// The number in a file that holds one number; empty for any other content ("max").
std::optional<int64_t> kernel_number(const std::filesystem::path& path);
// Lines "key value" or "key:  value unit", by key without the colon. Other lines are ignored.
std::map<std::string, int64_t> kernel_table(const std::filesystem::path& path);
// The cores that the folder's CPU quota allows; negative if it sets none.
double cgroup_cpu_quota(const std::filesystem::path& folder);

}  // namespace tanren
