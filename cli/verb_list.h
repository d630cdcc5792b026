// The table of verbs, read by the parser, main, `--help` and the shell completions. A new verb is a
// row here and a file with its function.
#pragma once

#include "cli/verbs.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace tanren::cli {

struct Verb {
  std::string name;
  std::string what;  // what it does, in one line
  void (*add_options)(CLI::App& command, Arguments& arguments);
  int (*run)(const Arguments& arguments, const Registry& registry);
  bool on_ranks = false;        // `launch` may start it on several ranks
  bool may_meet_torch = false;  // reads a config or a model, and takes --verbose
};
const std::vector<Verb>& verbs();

// The verb with this name.
const Verb& verb_named(const std::string& name);

// The verbs that `launch` starts on several ranks.
std::vector<std::string> verbs_on_ranks();

// Adds every verb to `app`; parsing then fills `arguments`, which must outlive it.
void add_verbs(CLI::App& app, Arguments& arguments);

}  // namespace tanren::cli
