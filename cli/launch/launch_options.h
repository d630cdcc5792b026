// The checked options of `tanren launch`: the number of ranks, the address of their rendezvous, and
// the program. Also the environment of each rank, the same as torchrun's (tanren/comm/world.h reads
// it). Every mistake throws a one-line ConfigError before a process starts. Used by launch.cpp.
#pragma once

#include "cli/verbs.h"

#include <string>
#include <vector>

namespace tanren::cli {

struct LaunchOptions {
  int ranks = 1;  // on each machine
  int nodes = 1;
  int node_rank = 0;
  std::string host;  // of rank 0, where the rendezvous takes place
  int port = 0;
  std::string program;               // path of the file
  bool is_verb = false;              // the program is this executable, with a verb
  std::vector<std::string> command;  // argv: the program's name as it prints it, and its arguments

  int rank(int local) const { return node_rank * ranks + local; }
  int world_size() const { return nodes * ranks; }
};

LaunchOptions launch_options(const Arguments& arguments);

// This process's environment plus the variables of a rank: NAME=value.
std::vector<std::string> rank_environment(const LaunchOptions& options, int local);

}  // namespace tanren::cli
