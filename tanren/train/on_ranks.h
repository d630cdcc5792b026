// What makes several ranks one run: the same start on each, and weights that are compared now and then.
// With one rank nothing happens. Called by train_loop and train_step.
#pragma once

#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Before the first batch. CommError naming the first of model, optimizer, precision, data and counters
// that is not rank 0's, on every rank; then weights and buffers become rank 0's, bitwise. CommError too
// where averaged weights or the optimizer's state, loaded from a checkpoint, are not rank 0's.
void begin_alike(RunState& run, const Parts& parts);

// After an applied update: CommError where some rank's weights are not rank 0's, every
// parallel.check_every steps.
void check_weights(const RunState& run, const Parts& parts);

enum class Draws { update, evaluation };  // of torch's own generator

// The draws of a user's at::dropout differ over ranks, and are a function of rank and attempt alone, so that
// a resumed run draws alike on any number of ranks, and an evaluation that is made again as the first
// time. One rank goes on where it is.
void reseed(const RunState& run, const DataParallel& parallel, Draws draws);

}  // namespace tanren
