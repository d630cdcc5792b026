// The whole command line as one call, for a program that brings models of its own: register them,
// call this from main, and every verb of `tanren` works on them. It alone prints and installs
// handlers for SIGINT, SIGTERM and SIGHUP (a run also ignores SIGPIPE); the rest of the library does
// neither.
#pragma once

#include "tanren/train/registry.h"

namespace tanren::cli {

// Runs the verb that argv names; returns the exit code: 0 done, 1 the run failed, 2 the input was
// wrong, 130 stopped by a signal and resumable. Throws nothing. The ranks of launch, where this process
// has one thread, are forks of it that end within this call, without what atexit holds.
int main(int argc, char** argv, const Registry& registry);

}  // namespace tanren::cli
