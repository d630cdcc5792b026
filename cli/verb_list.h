// The verbs and their options, described once: the parser, `--help` and the shell completions all
// read this description.
#pragma once

#include "cli/verbs.h"

#include <CLI/CLI.hpp>

namespace tanren::cli {

// Adds every verb to `app`; parsing then fills `arguments`, which must outlive it.
void add_verbs(CLI::App& app, Arguments& arguments);

}  // namespace tanren::cli
