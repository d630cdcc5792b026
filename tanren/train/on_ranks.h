// Makes several ranks one run: they start equal, and their weights are compared at intervals. With
// one rank nothing happens. Called by train_loop and train_step.
#pragma once

#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Call this before the first batch. Compares model, optimizer, precision, data, stages and counters
// over the ranks. If they differ, every rank throws a ConfigError that names the first difference
// to rank 0. Then copies weights and buffers from the first replica of each stage, and weights of
// several stages from their owner. Throws CommError if averaged weights or the optimizer's state,
// loaded from a checkpoint, differ from the first replica's.
void begin_alike(RunState& run, const Parts& parts);

// After an applied update, every parallel.check_every steps: throws CommError if a rank's weights
// are not those of the first replica of its stage, or a weight of several stages is not the same on
// each.
void check_weights(const RunState& run, const Parts& parts);

// Whether `here` is true on some rank of the axis, or of all ranks. All of them must call it.
bool on_any_rank(bool here, const RankAxis& axis);
bool on_any_rank(bool here, const Ranks& ranks);

enum class Draws { update, evaluation };  // of torch's own generator

// Seeds torch's generator so that the draws of a user's at::dropout differ over ranks, stages
// included, and depend only on run.seed, rank and attempt. In a resumed run each rank then draws
// the same numbers, however many ranks there are, and a repeated evaluation draws the same as the
// first time. A single rank keeps its generator's state.
void reseed(const RunState& run, const Ranks& ranks, Draws draws);

}  // namespace tanren
