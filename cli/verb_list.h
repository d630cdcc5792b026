// The verbs and their options, described once: the parser, `--help` and the shell completions all
// read this description.
#pragma once

#include "cli/verbs.h"

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace tanren::cli {

// Adds every verb to `app`; parsing then fills `arguments`, which must outlive it.
void add_verbs(CLI::App& app, Arguments& arguments);

// Whether the verb takes --verbose.
bool takes_verbose(const std::string& verb);

// The verbs that `launch` starts on several ranks.
std::vector<std::string> verbs_on_ranks();

}  // namespace tanren::cli
