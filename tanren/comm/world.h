// World: which rank of how many this process is, as its launcher says in the environment, and where the
// ranks meet: torchrun and our own launcher, Slurm's srun, Open MPI's and MPICH's mpirun. Torch-free,
// no state. Called by run before anything else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tanren {

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine
  int local_size = 1;
  std::string host = "127.0.0.1";  // of rank 0, where the ranks meet
  int port = 0;                    // 0: size is 1 and nobody meets
  std::string launcher = "none";   // torchrun, slurm, openmpi, mpich
};

// Reads one variable; empty where it is unset or empty.
using Environment = std::function<std::optional<std::string>(const char*)>;
Environment process_environment();

// What the environment says, the first of the launchers above that says it; a World of one where none
// does. ConfigError where it contradicts itself, or says too little to meet.
World world_of(const Environment& environment);

}  // namespace tanren
