// [memory]: who allocates tensors, how many bytes, and what is done to need fewer.
#pragma once

#include <string>
#include <vector>

namespace tanren {

struct MemoryOptions {
  std::string allocator = "auto";  // of tensors on the CPU: auto, cached, default
  std::string limit = "auto";      // for tensors: "8GiB", "0.9" of what the machine has, auto, none
  std::vector<std::string> recompute;  // patterns of blocks that keep only their input for backward
  std::vector<std::string> offload;    // patterns of blocks whose input waits in host memory
  std::string recovery = "auto";       // when memory runs out: split, same_split, off; auto
  std::string release_cache = "pressure";  // when freed memory is given back: never, pressure, step
};

}  // namespace tanren
