// [parallel]: one run on several ranks, with the same numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct ParallelOptions {
  std::string ranks = "processes";  // processes (a launcher starts them), threads (replicas here)
  // threads: the number of replicas of each stage; 0: one per device, planned on the CPU
  int64_t replicas = 0;
  std::vector<int64_t> devices;  // threads: indices of CUDA devices, one per rank; empty: all
  std::string backend = "auto";  // processes: auto, gloo, nccl
  std::string rendezvous;  // processes: tcp://host:port or file:///path; empty: the launcher's
  int64_t pipeline = 1;    // stages that the model is cut into; other ranks share the samples
  std::string pipeline_schedule = "1f1b";  // order of a stage's forwards and backwards: 1f1b, gpipe
  std::vector<std::string> cut_at;         // first block of each later stage; empty: the plan cuts
  double timeout = 600.0;                  // seconds that a rank waits for the others
  double bucket_mb = 25.0;                 // gradients that are reduced at once, in MiB
  double first_bucket_mb = 1.0;            // size of the bucket that is ready first
  bool overlap = true;                     // reduce while backward runs
  std::string compress = "none";           // gradients on the wire: none, bf16, fp16
  std::string buffers = "mean";            // batch norm: mean, first (with samples), synchronised
  int64_t check_every = 100;  // applied steps between comparisons of the weights; 0: at start only
  int64_t zero = 0;           // sharded over ranks: 0 nothing, 1 optimizer state, 2 also gradients
};

}  // namespace tanren
