#include "tanren/forecast/block_profile.h"

#include "tanren/base/memory_tag.h"
#include "tanren/base/random.h"
#include "tanren/blocks/block_trail.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/forward_work.h"
#include "tanren/dry/trace_scope.h"
#include "tanren/forecast/block_watch.h"
#include "tanren/forecast/dry_step.h"
#include "tanren/forecast/generator_scope.h"
#include "tanren/precision/autocast_scope.h"
#include "tanren/precision/half_convolution.h"
#include "tanren/train/build.h"
#include "tanren/train/prepared.h"

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <utility>

namespace tanren {

namespace {

int64_t size_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

// Bytes of gradients, optimizer state and averages by the parameter's name.
std::map<std::string, int64_t> state_sizes(const RunState& run) {
  std::map<std::string, int64_t> sizes;
  for (const Phase& phase : run.phases) {
    for (const Objective& objective : phase.objectives) {
      State state = objective.optimizer->state();
      for (const NamedParameter& parameter : objective.parameters) {
        int64_t& size = sizes[parameter.name];
        size += size_of(parameter.tensor.grad());
        for (const auto& [name, tensor] : part_below(state, parameter.name).tensors) {
          size += size_of(tensor);
        }
      }
      if (!objective.average) continue;
      for (const auto& [name, tensor] : objective.average->state().tensors) {
        sizes[name] += size_of(tensor);
      }
    }
  }
  return sizes;
}

Batch with_shapes_of(const Batch& batch) {
  Batch shapes;
  shapes.ids = batch.ids;
  const MemoryScope memory(MemoryKind::batches);
  for (const auto& [name, field] : batch.fields) {
    shapes.fields.set(name, at::empty(field.sizes(), field.options()));
  }
  return shapes;
}

}  // namespace

ModelBlocks block_profile(const Plan& given, const std::function<Task()>& make_task,
                          const Batch& batch) {
  Plan plan = given;
  plan.parallel.zero = 0;
  const GeneratorScope generators(at::kCPU);
  if (plan.device.device == "cpu") enable_half_convolution();
  const TraceScope tracing;
  ForwardWork work;
  const DryScope dry(device_type(plan), &work);
  const Parts parts{.plan = plan};
  Task task = make_task();
  if (!task.facts.runs_dry) throw NeedsValues("the task says that it cannot run without values");
  const RunState run = build_run_state(std::move(task), parts);
  const Batch shapes = prepared(with_shapes_of(batch), run.task, parts);
  work.multiply_adds.clear();
  work.backward_multiply_adds = 0;

  const BlockTrailScope trail;
  const RandomScope random(run.seed, /*attempt=*/0, shapes.ids);
  const MemoryScope memory(MemoryKind::activations);
  const AutocastScope autocast(parts.device.type(), plan.precision);
  BlockWatch watch(*run.task.module, shapes, tracing, work);
  const Terms terms = run.phases.front().spec.forward(shapes);  // holds what backward needs
  for (const Term& term : terms) watch.returns(term.sum);
  ModelBlocks model = watch.finish(shapes.size());
  const auto sizes = state_sizes(run);
  for (WeightCost& weight : model.weights) {
    const auto found = sizes.find(weight.name);
    if (found != sizes.end()) weight.state_bytes = found->second;
  }
  return model;
}

}  // namespace tanren
