// Pipeline schedules as data: which forward or backward each stage does next, and how long a window
// takes. A stage passes a forward's output on to the next stage and the gradient of its input back
// to the previous stage. Sends and receives are therefore not actions: receives_from() and
// sends_to() return them. In each direction between two stages, messages are sent and received by
// rising microbatch. A stage waits for the receive of the current action, then posts the receive of
// its next action, then computes the current one. With this order a window does not deadlock, even
// if each send waits for its receive, or if a send and the receives posted before it go as one
// group (NCCL). A receive posted any earlier would delay the current action. Torch-free and pure:
// the plan predicts with it, and train/ executes the actions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tanren {

// gpipe: all forwards, then all backwards (Huang et al., 2019). one_f_one_b: each stage starts its
// backwards as early as it can, and then does forward and backward in turn (Narayanan et al., 2019,
// with the flush of Megatron-LM). Both take the backwards by rising microbatch, so gradients are
// summed in the order of a run without stages.
enum class PipelineSchedule { gpipe, one_f_one_b };

enum class Act { forward, backward };

struct PipelineAction {
  Act act = Act::forward;
  int64_t stage = 0;
  int64_t microbatch = 0;
  bool operator==(const PipelineAction&) const = default;
};

// The actions of one stage in a window of `microbatches`, in their order; none for 0 microbatches.
// `stage` is in [0, stages).
std::vector<PipelineAction> pipeline_actions(PipelineSchedule kind, int64_t stage, int64_t stages,
                                             int64_t microbatches);

// The stage whose message the action needs, and the stage that its result goes to, if any.
std::optional<int64_t> receives_from(const PipelineAction& action, int64_t stages);
std::optional<int64_t> sends_to(const PipelineAction& action, int64_t stages);

// The largest number of microbatches that one stage holds at a time, each from the start of its
// forward to the end of its backward.
int64_t most_in_flight(const std::vector<PipelineAction>& actions);

// Durations, in seconds or any other unit: of one microbatch in each stage, and of the transfer of
// one message.
struct PipelineDurations {
  std::vector<double> forward, backward;  // per stage
  double transfer = 0;
};

struct PipelineTimes {
  double makespan = 0;                  // from the first action's start to the last one's end
  double bubble = 0;                    // share of the stages' time without an action, in [0, 1)
  std::vector<int64_t> most_in_flight;  // per stage
};

// Times of a window. Stages wait for messages. A send takes no time of the sender, and any number
// of messages may be in transit at once.
PipelineTimes simulate_pipeline(PipelineSchedule kind, int64_t stages, int64_t microbatches,
                                const PipelineDurations& durations);
// The same for any actions, one list per stage. Error if the stages deadlock.
PipelineTimes simulate_pipeline(const std::vector<std::vector<PipelineAction>>& actions,
                                const PipelineDurations& durations);

}  // namespace tanren
