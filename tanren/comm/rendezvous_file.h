// The file in which the ranks meet.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace tanren {

// c10d's store in a file, with its keys under `prefix`. The last of `size` ranks to destroy its
// store removes the file. Opening blocks while another process keeps the file locked or has left it
// half-written; destroying the store does not.
c10::intrusive_ptr<c10d::Store> open_rendezvous_file(const std::string& path, int size,
                                                     const std::string& prefix,
                                                     std::chrono::milliseconds timeout);

}  // namespace tanren
