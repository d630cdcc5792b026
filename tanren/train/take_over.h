// Loads into a new run what it takes from a checkpoint of another run, which may have had another
// optimizer, precision or number of ranks. What to take was decided before (run/fork.h); the model
// has the checkpoint's names and shapes. Called by run, on every rank.
#pragma once

#include "tanren/checkpoint/checkpoint.h"
#include "tanren/train/run_state.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tanren {

// What an objective takes in addition to its counter, loss scale and guard.
struct TakenObjective {
  bool optimizer = false;  // the state of all parameters for which it is there
  bool average = false;
  bool plateau_scale = false;  // what evaluations did to the rate
  bool plateau = false;        // what they were compared with, too
};

struct TakenParts {
  // By "phase.objective": the objectives that the checkpoint has. Others start again.
  std::map<std::string, TakenObjective> objectives;
  // Applied updates that objectives begin with, if not as many as the checkpoint counts for them.
  std::map<std::string, int64_t> steps;
  bool flags = false;        // what is trained, and which modules are in eval mode
  bool position = false;     // the place in the data
  bool random = false;       // torch's generators
  bool evaluations = false;  // what was judged, and early stop's record
};

// Always takes weights, buffers and the count of attempts. If a weight has an fp32 copy, takes the
// copy. Does not take the list of best checkpoints. Without `parts.flags`, everything that `freeze`
// unfreezes by this step is trained. Returns the parameters, with their objectives, whose optimizer
// state was requested and is in the checkpoint but does not fit; their state starts again.
// `device`: the run's.
std::vector<std::string> take_over(RunState& run, at::Device device, const Snapshot& from,
                                   const TakenParts& parts, const FreezePlan& freeze);

}  // namespace tanren
