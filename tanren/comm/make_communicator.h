#pragma once
#include "tanren/comm/gloo.h"
#include <string>
namespace tanren {
struct CommOptions {
  std::string backend = "auto";
  std::string meeting = {};
  std::chrono::milliseconds patience{600'000};
};
inline std::unique_ptr<Communicator> make_communicator(const World& world, const CommOptions& o) {
  return gloo_communicator(world, o.patience);
}
}  // namespace tanren
