// World: which rank of how many this process is, as its launcher says in the environment, and where
// the ranks meet, from there or from a URL: torchrun and our own launcher, Slurm's srun, Open MPI's
// and MPICH's mpirun. Torch-free, no state. Called by run before anything else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tanren {

// Set by tanren launch, which else leaves torchrun's variables.
inline constexpr const char* kOurLauncher = "TANREN_LAUNCH";

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine
  int local_size = 1;
  std::string host = "127.0.0.1";  // of rank 0, where the ranks meet
  int port = 0;                    // 0: size is 1 and nobody meets, or they do in a file
  std::string file;  // where they meet instead, on a file system that all machines share
  // torchrun's agent keeps the store at host and port, for every start of the run.
  bool has_agent_store = false;
  std::string attempt;  // the number of this start, where the launcher counts them
  // tanren launch, torchrun, RANK and WORLD_SIZE (whoever sets these), slurm, openmpi, mpich
  std::string launcher = "none";
};

// Reads one variable; empty where it is unset or empty.
using Environment = std::function<std::optional<std::string>(const char*)>;
Environment process_environment();

// What the environment says, the first of the launchers above that says it; a World of one where
// none does. `rendezvous`: set_rendezvous() with it, and the environment need not say where. ConfigError
// where it contradicts itself, or says too little to meet.
World world_of(const Environment& environment, const std::string& rendezvous = "");

// The ranks meet at "tcp://host:port" (rank 0's) or in "file:///path" (a new file in a folder that
// all machines see). Empty: where they are. ConfigError.
void set_rendezvous(World& world, const std::string& rendezvous);
// "127.0.0.1:29500" or the path.
std::string place_of(const World& world);

}  // namespace tanren
