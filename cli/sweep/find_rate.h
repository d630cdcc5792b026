// `tanren sweep FILE --set sweep.find=learning_rate`: finds a learning rate for a config, or for a
// run from its newest checkpoint. Trains only in memory and only reads the run folder. Used by the
// verb sweep.
#pragma once

#include "cli/verbs.h"

namespace tanren::cli {

// Whether sweep.find is set: in the named config file, or by --set. ConfigError as read_config.
bool asks_to_find(const Arguments& arguments, const Registry& registry);

// Prints the report and writes it as learning_rate.json and .html to find/ in the folder of --out,
// or in sweeps/<run.name>. Returns the exit code. ConfigError or InputError for a folder of a
// sweep, a step folder, a task with several objectives, run.fork_from, or an --out within a run
// folder; nothing is written then. RunError if no learning rate can be found from the losses; the
// report is written before. Other errors as `tanren run`.
int find_rate(const Arguments& arguments, const Registry& registry);

}  // namespace tanren::cli
