// ThreadGroup: ranks that are threads of one process, without a network. Each waiting rank sums a
// share of the elements, in rank order, so the sums are the same every time. Tensors may be on any
// devices. A link of a given speed can be simulated, to see what overlap hides. Thread-safe;
// outlives its communicators.
#pragma once

#include "tanren/comm/communicator.h"

#include <chrono>
#include <memory>
#include <string>

namespace tanren {

class ThreadGroup {
 public:
  struct Options {
    double bytes_per_second = 0;  // of the simulated link, which all share; 0: no link
    std::chrono::milliseconds timeout{600'000};  // a rank that comes later than this is missing
  };
  explicit ThreadGroup(int world_size);
  ThreadGroup(int world_size, Options options);

  // For the thread that is rank `rank`; once for each rank.
  std::unique_ptr<Communicator> communicator(int rank) const;
  // Every wait, now and later, ends with CommError(why); the first reason stays.
  void cancel(const std::string& why) const;
  // Operations that all their ranks have started, and the bytes of one rank's tensors in them. A
  // message is one operation.
  int64_t num_operations() const;
  int64_t num_bytes() const;

  struct Shared;

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace tanren
