#include "tanren/train/pipeline.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/memory/attempt.h"
#include "tanren/train/check_terms.h"
#include "tanren/train/passes.h"
#include "tanren/train/step_error.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace tanren {

namespace {

// A microbatch between its forward and its backward.
struct InFlight {
  ForwardPass pass = {};
  at::Tensor input = {};   // what was received, a leaf; undefined on the first stage
  at::Tensor output = {};  // with its graph; undefined on the last stage
  WireShape sent = {};     // of the output
};

// Adds the seconds of its lifetime to `seconds`.
class WaitScope {
 public:
  explicit WaitScope(double& seconds) : seconds_(seconds) {}
  ~WaitScope() { seconds_ += seconds_since(start_); }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  double& seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<Batch> microbatches_of(const Batch& piece, int64_t planned) {
  const int64_t most = planned > 0 ? planned : piece.size();
  std::vector<Batch> parts;
  for (int64_t begin = 0; begin < piece.size(); begin += most) {
    const int64_t end = std::min(begin + most, piece.size());
    parts.push_back(end - begin == piece.size() ? piece : piece.slice(begin, end));
  }
  return parts;
}

// What the next start may set to need less memory.
std::string what_needs_less(const StepContext& context) {
  std::vector<std::string> ways;
  const int64_t samples = context.run.microbatch;
  if (samples > 1) ways.push_back(fmt::format("batch.microbatch = {}", samples / 2));
  if (context.parts.plan.memory.recompute.empty()) ways.emplace_back("memory.recompute = [\"*\"]");
  if (context.run.stage->schedule == PipelineSchedule::gpipe) {
    ways.emplace_back("parallel.pipeline_schedule = \"1f1b\"");
  }
  ways.emplace_back("more stages (parallel.pipeline)");
  return join(ways, " or ");
}

// "out of memory in addmm of block first".
[[noreturn]] void throw_shortage(const std::string& where, const std::string& size,
                                 const Shortage& shortage, const std::string& advice) {
  std::string place = shortage.operation.empty() ? "" : " in " + shortage.operation;
  if (!shortage.block.empty()) {
    place += (place.empty() ? " in block " : " of block ") + shortage.block;
  }
  const std::string bytes =
      shortage.bytes > 0 ? fmt::format(", {} bytes were asked for", shortage.bytes) : "";
  throw MemoryError(
      fmt::format("[memory] {}: out of memory{}{}{} ({}); a run in stages is not split further: "
                  "take {}; tanren "
                  "plan tells what each stage then needs",
                  where, place, size, bytes, shortage.message, advice));
}

class StageWindow {
 public:
  StageWindow(Phase& phase, const Batch& piece, const StepContext& context)
      : phase_(phase),
        context_(context),
        plan_(*context.run.stage),
        pipeline_(context.parts.ranks->pipeline().communicator()),
        passes_{phase, context.run, context.parts, context.batch},
        wires_(plan_, pipeline_, context.parts.device, phase.stage_shapes),
        parts_(microbatches_of(piece, context.run.microbatch)),
        gives_gradient_(trains_below(phase, plan_, plan_.stage)),
        takes_gradient_(!plan_.is_last() && trains_below(phase, plan_, plan_.stage + 1)) {}

  void run() {
    const auto start = std::chrono::steady_clock::now();
    run_actions();
    phase_.stage_time = {.seconds = seconds_since(start), .waited = waited_};
  }

 private:
  void run_actions() {
    const auto actions = pipeline_actions(plan_.schedule, plan_.stage, plan_.stages(),
                                          static_cast<int64_t>(parts_.size()));
    std::optional<StageWires::Receive> next;
    for (size_t i = 0; i < actions.size(); ++i) {
      in_attempt(actions[i], [&] {
        at::Tensor tensor;
        {
          auto received = next ? std::exchange(next, std::nullopt) : start_receive(actions[i]);
          if (received) tensor = wait(*received);
        }
        // Starts the next receive now, so that it runs while this stage computes. Started earlier,
        // it would be grouped with a send.
        if (i + 1 < actions.size()) next = start_receive(actions[i + 1]);
        if (actions[i].act == Act::forward) {
          forward(actions[i].microbatch, std::move(tensor));
        } else {
          backward(actions[i].microbatch, tensor);
        }
      });
    }
    {
      const WaitScope waiting(waited_);
      wires_.finish();
    }
  }

  at::Tensor wait(StageWires::Receive& receive) {
    const WaitScope waiting(waited_);
    return receive.wait();
  }

  const Batch& part(int64_t microbatch) const { return parts_[static_cast<size_t>(microbatch)]; }

  // Starts to receive the tensor that the action needs. Empty if it needs none, or if the receive
  // cannot start yet.
  std::optional<StageWires::Receive> start_receive(const PipelineAction& action) {
    const int64_t microbatch = action.microbatch;
    const MemoryScope memory(MemoryKind::activations);
    if (action.act == Act::forward) {
      if (plan_.stage == 0) return std::nullopt;
      return wires_.start_input(part(microbatch), microbatch);
    }
    const auto flight = in_flight_.find(microbatch);
    if (!takes_gradient_ || flight == in_flight_.end()) return std::nullopt;
    const WireShape& shape = flight->second.sent;
    if (!shape.has_gradient()) return std::nullopt;
    return wires_.start_gradient(shape, microbatch);
  }

  void forward(int64_t microbatch, at::Tensor input) {
    const Batch& piece = part(microbatch);
    for (Objective* objective : phase_.in_turn()) objective->gradients.begin_microstep();
    InFlight flight;
    if (input.defined()) {
      const bool is_trained = gives_gradient_ && shape_on_wire(input).has_gradient();
      flight.input = input.set_requires_grad(is_trained);
    }
    Terms terms;
    flight.pass = in_forward(passes_, piece, [&] {
      StageScope scope(plan_.blocks, flight.input);
      flight.output = run_stage(scope, [&] { terms = phase_.spec.forward(piece); }).output;
      if (plan_.is_last()) check_terms(phase_, terms);
      check_gradients_kept(phase_);
    });
    if (plan_.is_last()) {
      flight.pass.terms = std::move(terms);
    } else {
      flight.sent = wires_.send_output(flight.output, piece, microbatch);
      // No stage up to this one trains a parameter, so the graph is not needed.
      if (!takes_gradient_) flight = {};
    }
    in_flight_.emplace(microbatch, std::move(flight));
  }

  void backward(int64_t microbatch, const at::Tensor& gradient) {
    const bool is_last = microbatch + 1 == std::ssize(parts_);
    InFlight flight = std::move(in_flight_.extract(microbatch).mapped());
    if (plan_.is_last()) {
      const Pending everything(phase_.objectives.size());
      backward_pass(passes_, flight.pass, everything, is_last);
    } else if (gradient.defined() && flight.output.requires_grad()) {
      in_backward(passes_, flight.pass, is_last,
                  [&] { torch::autograd::backward({flight.output}, {gradient}); });
    }
    if (flight.input.defined() && flight.input.requires_grad()) {
      wires_.send_gradient(flight.input.grad(), flight.input, microbatch);
    }
    context_.losses.add(flight.pass.terms, part(microbatch).size());
  }

  void in_attempt(const PipelineAction& action, const std::function<void()>& work) const {
    const bool in_backward = action.act == Act::backward;
    const std::string step = to_text(context_.run.updated_step);
    const std::string where = fmt::format("microbatch {}, stage {} of {}", action.microbatch + 1,
                                          plan_.stage + 1, plan_.stages());
    std::optional<Shortage> shortage;
    try {
      shortage = attempt(work);
    } catch (...) {
      throw_located({.work = fmt::format("step {}, {}", step, where),
                     .piece = part(action.microbatch),
                     .ranks = *context_.parts.ranks,
                     .fix = in_backward ? "backward" + hint() : "forward, or the data",
                     .in_backward = in_backward});
    }
    if (!shortage) return;
    throw_shortage(
        fmt::format("step {}, {} of {}", step, in_backward ? "backward" : "forward", where),
        fmt::format(" with {} samples, {} others in flight", part(action.microbatch).size(),
                    num_held()),
        *shortage, what_needs_less(context_));
  }

  // Call this while an exception of a backward is handled. Names a cause that exists only with
  // several microbatches in flight; empty if it does not apply.
  std::string hint() const {
    const bool may_be =
        num_held() > 0 && line_of_current().find("inplace operation") != std::string::npos;
    if (!may_be) return "";
    return fmt::format(
        " ({} microbatches were in flight: a block may have saved a buffer that it updates in "
        "place; let it save a copy)",
        num_held() + 1);
  }

  // The number of microbatches that keep something for their backward. It is 0 on stages below all
  // trained parameters.
  int64_t num_held() const {
    return std::count_if(in_flight_.begin(), in_flight_.end(), [](const auto& entry) {
      const InFlight& flight = entry.second;
      return flight.output.defined() || !flight.pass.terms.empty();
    });
  }

  Phase& phase_;
  const StepContext& context_;
  const StagePlan& plan_;
  Communicator& pipeline_;
  PassContext passes_;
  StageWires wires_;
  std::vector<Batch> parts_;  // the microbatches
  bool gives_gradient_;       // to the stage before
  bool takes_gradient_;       // from the next stage
  std::map<int64_t, InFlight> in_flight_;
  double waited_ = 0;  // seconds, for other stages
};

// Sets `own` to the sum of its values on all stages that hold it, added in the order of the stages.
void add_theirs(const std::string& name, const at::Tensor& own, const StagePlan& plan,
                Communicator& pipeline) {
  const std::string what = "the gradient of " + name;
  const at::Tensor sent = own.to(pipeline.device_for(own.device()));
  std::vector<at::Tensor> gradients;
  std::vector<Communicator::Work> works;
  for (const int64_t stage : plan.holders_of(name)) {
    gradients.push_back(sent);
    if (stage == plan.stage) continue;
    gradients.back() = at::empty_like(sent);
    const int rank = static_cast<int>(stage);
    works.push_back(pipeline.start_receive(gradients.back(), rank, what));
    works.push_back(pipeline.start_send(sent, rank, what));
  }
  for (const auto& work : works) work->wait();
  at::Tensor sum = gradients.front();
  for (size_t i = 1; i < gradients.size(); ++i) sum.add_(gradients[i]);
  if (!sum.is_same(own)) at::Tensor(own).copy_(sum);
}

}  // namespace

bool trains_below(const Phase& phase, const StagePlan& plan, int64_t stage) {
  for (const Objective& objective : phase.objectives) {
    for (const NamedParameter& parameter : objective.all) {
      const bool is_below = plan.holders_of(parameter.name).front() < stage;
      if (is_below && parameter.tensor.requires_grad()) return true;
    }
  }
  return false;
}

void check_can_be_staged(const Task& task, const Plan& plan) {
  const auto refuse = [](const std::string& what) {
    throw ConfigError("[pipeline] a run in stages cannot have " + what);
  };
  const bool has_several =
      std::any_of(task.phases.begin(), task.phases.end(),
                  [](const auto& phase) { return phase.objectives.size() > 1; });
  if (task.phases.size() > 1 || has_several) {
    refuse("several phases or objectives; train the model on one rank, or on replicas of it");
  }
  if (plan.parallel.buffers == RankBuffers::synchronised) {
    refuse("parallel.buffers = \"synchronised\"; take mean or first");
  }
  if (plan.average.buffers == AverageBuffers::estimate && plan.average.kind != Averaging::none) {
    refuse("average.buffers = \"estimate\"; take average or copy");
  }
}

void accumulate_stage(Phase& phase, const Batch& piece, const StepContext& context) {
  const int64_t stages = context.run.stage->stages();
  const RankAxis& pipeline = context.parts.ranks->pipeline();
  if (pipeline.size() != stages || pipeline.rank() != context.run.stage->stage) {
    throw Error(fmt::format(
        "[pipeline] this rank holds stage {} of {} and is number {} of {} in its pipeline; give "
        "Ranks the axes of the stages",
        context.run.stage->stage, stages, pipeline.rank(), pipeline.size()));
  }
  StageWindow(phase, piece, context).run();
}

void add_tied(Phase& phase, const StepContext& context) {
  const StagePlan& plan = *context.run.stage;
  const at::NoGradGuard no_grad;
  for (Objective* objective : phase.in_turn()) {
    Gradients& gradients = objective->gradients;
    for (size_t i = 0; i < objective->parameters.size(); ++i) {
      const std::string& name = objective->parameters[i].name;
      if (!plan.is_tied(name)) continue;
      // A weight of several stages has its own bucket, so that it is sliced the same way on each.
      const auto shortage = attempt([&] {
        const at::Tensor own = gradients.sharding().on() ? gradients.part(gradients.place(i).buffer)
                                                         : gradients.whole(i);
        add_theirs(name, own, plan, context.parts.ranks->pipeline().communicator());
      });
      if (!shortage) continue;
      throw_shortage(
          fmt::format("step {}, exchange of {}, stage {} of {}", to_text(context.run.updated_step),
                      name, plan.stage + 1, plan.stages()),
          "", *shortage, what_needs_less(context));
    }
  }
}

}  // namespace tanren
