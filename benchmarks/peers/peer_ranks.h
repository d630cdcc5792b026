// Ranks that are processes and work at the same time, for a benchmark that drives both sides of a
// comparison: each is a peer (peer_process.h) and answers a line for each block of work.
#pragma once

#include "tanren/comm/sockets.h"
#include "benchmarks/peers/peer_process.h"

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

namespace tanren::bench {

// A port of the loopback that was free a moment ago.
inline int free_port() { return port_of(listening_socket("127.0.0.1", 0, false)); }

class PeerRanks {
 public:
  // `command`: of each rank. They are started together, because each waits for the others.
  PeerRanks(int ranks, const std::function<std::vector<std::string>(int rank)>& command,
            std::chrono::seconds patience = {}) {
    std::vector<std::future<std::unique_ptr<PeerProcess>>> starting;
    starting.reserve(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      starting.push_back(std::async(std::launch::async, [words = command(rank), patience] {
        return std::make_unique<PeerProcess>(words, patience);
      }));
    }
    for (auto& rank : starting) ranks_.push_back(rank.get());
  }

  // Runs one more block on all ranks; returns their answers. If one does not answer, all are ended,
  // since the others may wait for it.
  std::vector<std::string> answers() {
    try {
      for (auto& rank : ranks_) rank->start();
      std::vector<std::string> lines;
      for (auto& rank : ranks_) lines.push_back(rank->finish());
      return lines;
    } catch (...) {
      for (auto& rank : ranks_) rank->kill();
      throw;
    }
  }

 private:
  std::vector<std::unique_ptr<PeerProcess>> ranks_;
};

}  // namespace tanren::bench
