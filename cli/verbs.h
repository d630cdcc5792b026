// The command line: one function per verb, one file each. The only place that prints.
// `tanren <verb> FILE [--set key=value]… [--out DIR]`; exit codes 0 done, 1 the run failed,
// 2 the input was wrong, 130 stopped by a signal and resumable.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/train/registry.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tanren::cli {

// launch: as typed.
struct LaunchArguments {
  std::string ranks, nodes, node_rank, master;
  std::vector<std::string> verb;     // of tanren, with its arguments
  std::vector<std::string> program;  // what stands behind --
};

struct Arguments {
  std::string program = "tanren";  // as it was called, without its folder
  std::string verb;
  std::string file;                  // config file, run folder, key for help, shell for completion
  std::vector<std::string> sets;     // --set key=value
  std::string out;                   // --out: folder of the run, or of the report
  std::string target;                // convert: file to write; eval: data of a whole model
  std::vector<std::string> renames;  // convert: old=new
  std::string dtype;                 // convert: of floating tensors
  std::string tokenizer;             // convert: file or folder, for a text
  bool optimizer = false;            // convert: a checkpoint with its optimizer, for torch
  bool list = false;                 // convert: say what the file holds
  bool once = false;                 // monitor: one look, then end
  std::string interval;              // monitor: seconds; empty: its default
  LaunchArguments launch;
  bool quiet = false;
  bool verbose = false;  // of an error, also what it was made of
  bool json = false;
};

// Reads the words behind the program's name. Where they are refused, or answered at once as --help
// is, that is printed and its exit code returned.
std::optional<int> read_arguments(const std::vector<std::string>& words, Arguments& arguments);

// Of the processes that a launcher started, this one's number; the first one talks.
int64_t rank_of_process();

// A measured value as people read it, six digits; --json has them all.
std::string shown(double value);

// The config that `arguments` name: a TOML file, or a run folder's config.toml; and the folder of
// its run.
struct Named {
  RunConfig config;
  std::filesystem::path folder;
  std::filesystem::path began;  // the run folder that was named; empty for a config file
};
Named read_named(const Arguments& arguments, const Registry& registry);

}  // namespace tanren::cli
