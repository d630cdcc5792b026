// [parallel]: one run on several ranks, with the same numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct ParallelOptions {
  std::string ranks = "processes";  // processes (a launcher starts them), threads (replicas here)
  int64_t replicas = 0;             // threads: how many; 0: one per device, planned on the CPU
  std::vector<int64_t> devices;     // threads: indices of CUDA devices, one per replica; empty: all
  std::string backend = "auto";     // processes: auto, gloo, nccl
  std::string rendezvous;   // processes: tcp://host:port or file:///path; empty: the launcher's
  double timeout = 600.0;   // seconds that a rank waits for the others
  double bucket_mb = 25.0;  // gradients that are reduced at once, in MiB
  double first_bucket_mb = 1.0;   // size of the bucket that is ready first
  bool overlap = true;            // reduce while backward runs
  std::string compress = "none";  // gradients on the wire: none, bf16, fp16
  std::string buffers = "mean";   // batch norm over ranks: mean, first (rank 0's), synchronised
  int64_t check_every = 100;  // applied steps between comparisons of the weights; 0: at start only
  int64_t zero = 0;           // sharded over ranks: 0 nothing, 1 optimizer state, 2 also gradients
};

}  // namespace tanren
