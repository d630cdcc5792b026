// The file in which the ranks meet.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace tanren {

// c10d's store in a file, its keys under `prefix`. The last of `size` ranks that lets go of it removes
// the file. Blocks for as long as another process keeps the file locked or left it half-written, which
// the end of the store does not.
c10::intrusive_ptr<c10d::Store> open_rendezvous_file(const std::string& path, int size,
                                                     const std::string& prefix,
                                                     std::chrono::milliseconds timeout);

}  // namespace tanren
