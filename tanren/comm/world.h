// World: the rank of this process, the number of ranks and the place where they meet. Rank and
// number come from the variables of the launcher (torchrun and our own launcher, Slurm's srun, Open
// MPI's and MPICH's mpirun), the place from there or from a URL. Torch-free, no state. Called by
// run before anything else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tanren {

// Set by tanren launch, whose other variables are torchrun's.
inline constexpr const char* kOurLauncher = "TANREN_LAUNCH";

struct World {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this machine
  int local_size = 1;
  std::string host = "127.0.0.1";  // of rank 0, where the ranks meet
  int port = 0;                    // 0: size is 1, or the ranks meet in a file
  std::string file;  // where the ranks meet instead; all machines must share the file system
  // torchrun's agent keeps the store at host and port, for every start of the run.
  bool has_agent_store = false;
  std::string attempt;  // the number of this start, if the launcher counts them
  // tanren launch, torchrun, RANK and WORLD_SIZE (set by anything else), slurm, openmpi, mpich
  std::string launcher = "none";
};

// Reads one variable; no value if it is unset or empty.
using Environment = std::function<std::optional<std::string>(const char*)>;
Environment process_environment();

// The World in the environment, by the first launcher whose variables are set: RANK and WORLD_SIZE
// (torchrun, tanren launch), Open MPI, MPICH, Slurm; a World of one rank if none are. `rendezvous`
// is passed to set_rendezvous(); with it the environment need not name a place. ConfigError if the
// environment contradicts itself, or says too little for the ranks to meet.
World world_of(const Environment& environment, const std::string& rendezvous = "");

// Makes the ranks meet at "tcp://host:port" (rank 0's) or in "file:///path" (a new file in a folder
// that all machines see). Empty: leaves `world` as it is. ConfigError.
void set_rendezvous(World& world, const std::string& rendezvous);
// "127.0.0.1:29500" or the path.
std::string place_of(const World& world);

}  // namespace tanren
