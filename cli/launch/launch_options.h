// What `tanren launch` was asked for, checked: how many ranks, where they meet, which program; and the
// environment of each rank, the one that torchrun gives (tanren/comm/world.h reads it). Everything
// that is wrong with it throws a ConfigError of one line before a process starts. Used by launch.cpp.
#pragma once

#include "cli/verbs.h"

#include <string>
#include <vector>

namespace tanren::cli {

struct LaunchOptions {
  int ranks = 1;  // of this machine; as many on each
  int nodes = 1;
  int node_rank = 0;
  std::string host;  // of rank 0, where all meet
  int port = 0;
  std::string program;               // path of the file
  bool is_verb = false;              // it is this program, with a verb
  std::vector<std::string> command;  // its name, as its own output says it, and its arguments

  int rank(int local) const { return node_rank * ranks + local; }
  int world_size() const { return nodes * ranks; }
};

LaunchOptions launch_options(const Arguments& arguments);

// This process's environment with the variables of a rank: NAME=value.
std::vector<std::string> rank_environment(const LaunchOptions& options, int local);

}  // namespace tanren::cli
