// Makes several ranks one run: they start equal, and their weights are compared at intervals. With
// one rank nothing happens. Called by train_loop and train_step.
#pragma once

#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

namespace tanren {

// Before the first batch. Compares model, optimizer, precision, data, stages and counters over the
// ranks: ConfigError on every rank, which names the first difference to rank 0. Then weights and
// buffers become bitwise those of the first replica of each stage, and weights of several stages
// their owner's. CommError if averaged weights or the optimizer's state, loaded from a checkpoint,
// are not the first replica's.
void begin_alike(RunState& run, const Parts& parts);

// After an applied update, every parallel.check_every steps: throws CommError if a rank's weights
// are not those of the first replica of its stage, or a weight of several stages is not the same on
// each.
void check_weights(const RunState& run, const Parts& parts);

// Whether `here` is true on some rank, of all or of one axis. An exchange between several ranks.
bool on_any_rank(bool here, const RankAxis& axis);
bool on_any_rank(bool here, const Ranks& ranks);

enum class Draws { update, evaluation };  // of torch's own generator

// Seeds torch's generator so that the draws of a user's at::dropout differ over ranks, stages
// included, and are a function of rank and attempt alone. A resumed run then draws the same on any
// number of ranks, and a repeated evaluation draws the same as the first time. A single rank keeps
// its generator's state.
void reseed(const RunState& run, const Ranks& ranks, Draws draws);

}  // namespace tanren
