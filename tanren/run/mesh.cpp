#include "tanren/run/mesh.h"

namespace tanren {

std::shared_ptr<const StagePlan> stage_of(const std::vector<StagePlan>& stages,
                                          const ParallelPlan& plan) {
  if (stages.empty()) return nullptr;
  auto own = std::make_shared<StagePlan>(stages[static_cast<size_t>(plan.stage())]);
  own->replica = plan.replica();
  own->replicas = plan.data_size();
  own->schedule = plan.schedule;
  return own;
}

}  // namespace tanren
