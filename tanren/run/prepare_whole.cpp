#include "tanren/run/prepare_whole.h"

#include "tanren/interop/described_task.h"
#include "tanren/interop/export.h"
#include "tanren/train/freezing.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>

namespace tanren {

Prepared prepare_whole(const ModelDescription& description, const SafetensorsFile& read,
                       const std::string& what, const Registry& registry,
                       std::unique_ptr<Dataset> eval) {
  const auto& [config, info, train_samples] = description;
  const auto task = [&](const ModelOptions& model) {
    // As build_task: a model may draw in its forward.
    at::manual_seed(static_cast<uint64_t>(description.config.run.seed));
    const bool is_wide = description.config.precision.mode == "fp64";
    Task built = build_described(model, description.info, read, what, registry.models,
                                 is_wide ? at::kDouble : at::kFloat);
    freeze(*built.module, model);
    return built;
  };
  return prepare(
      config, registry, /*has_weights=*/true, "",
      {.datasets = {described_dataset(info, train_samples), std::move(eval)}, .task = task},
      /*trains=*/false);
}

RunState whole_state(Task task, const Parts& parts, const Metadata& metadata) {
  RunState state = build_run_state(std::move(task), parts, /*trains=*/false);
  state.phases.front().objectives.front().step = weights_origin(metadata).step;
  return state;
}

}  // namespace tanren
