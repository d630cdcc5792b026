// Stands in for the header of this name, which libtorch does not ship: what c10d's Gloo class and
// gloo.cpp need, and no more. Gloo itself is inside libtorch.
#pragma once

#include <gloo/transport/pair.h>

#include <chrono>
#include <memory>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::unique_ptr<transport::Pair>& getPair(int rank);
};

}  // namespace gloo
