// The command line: one function per verb, one file each. The only place that prints.
// `tanren <verb> FILE [--set key=value]… [--out DIR]`; exit codes 0 done, 1 the run failed,
// 2 the input was wrong, 130 stopped by a signal or run.max_time, and resumable.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tanren::cli {

// The arguments of launch, as typed.
struct LaunchArguments {
  std::string ranks, nodes, node_rank, master;
  std::vector<std::string> verb;     // of tanren, with its arguments
  std::vector<std::string> program;  // the words after --
};

struct Arguments {
  std::string program = "tanren";  // as called, without its folder
  std::string verb;
  std::string file;               // config file, run folder, key for help, shell for completion
  std::vector<std::string> sets;  // --set key=value
  std::string out;                // --out: folder of the run, or of the report
  std::string target;             // convert: file to write; eval, quantize: data; predict: source
  std::vector<std::string> renames;   // convert: old=new
  std::string dtype;                  // convert: target type of floating tensors
  std::string tokenizer;              // convert: file or folder, for a text
  bool optimizer = false;             // convert: a checkpoint with its optimizer, for torch
  bool list = false;                  // convert: print what the file holds
  bool fork = false;                  // run, plan: a new run from the named one's checkpoint
  std::optional<std::string> prompt;  // generate
  std::string predictions;            // eval: file to write, one row per sample
  bool force = false;                 // eval, predict, quantize: replace files that are there
  bool once = false;                  // monitor: one look, then end
  std::string interval;               // monitor: seconds; empty: its default
  LaunchArguments launch;
  bool quiet = false;
  bool no_advice = false;  // anatomy: try no other settings
  bool verbose = false;    // print also where an error comes from
  bool json = false;
};

// Parses the words after the program's name. If they are refused or answered at once (like --help),
// prints the answer and returns the exit code.
std::optional<int> read_arguments(const std::vector<std::string>& words, Arguments& arguments);

// This process's rank among those that a launcher started; rank 0 prints.
int64_t rank_of_process();

// A measured value for people, with six digits; --json has all digits.
std::string shown(double value);

// The config that `arguments` name (a TOML file, or a run folder's config.toml), and the folder of
// its run. With --fork, the config of the named run or step folder, as a fork of it.
struct Named {
  RunConfig config;
  std::filesystem::path folder;
  // The run folder that was named, or the existing folder in which the fork is to be made; empty
  // for a config file.
  std::filesystem::path began;
};
Named read_named(const Arguments& arguments, const Registry& registry);
// The keys that --set names.
std::set<std::string> requested_by(const Arguments& arguments);

}  // namespace tanren::cli
