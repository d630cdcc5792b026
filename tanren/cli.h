// The whole command line as one call, for a program with models of its own: register them, call
// this from main, and every verb of `tanren` works on them. Only this call prints and installs
// handlers for SIGINT, SIGTERM and SIGHUP (a run also ignores SIGPIPE); the rest of the library
// does neither.
#pragma once

#include "tanren/train/registry.h"

namespace tanren::cli {

// Runs the verb that argv names; returns the exit code: 0 done, 1 the run failed, 2 the input was
// wrong, 130 stopped and resumable. Throws nothing. If this process has one thread, the
// ranks of launch are forks of it that end within this call, without running atexit handlers.
int main(int argc, char** argv, const Registry& registry);

}  // namespace tanren::cli
