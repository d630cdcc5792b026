// Element optimizer: groups, step counts, state and skipping around one element rule.
// Called by make_optimizer; tests choose the way.
#pragma once

#include "tanren/optimizer/element_rule.h"
#include "tanren/optimizer/optimizer.h"

namespace tanren {

// automatic: one pass where the parameters are on the CPU in fp32 or fp64, else foreach.
enum class Way { automatic, foreach };

// A skip flag is read on the host: it is one device read of step() where one is given.
std::unique_ptr<Optimizer> make_element_optimizer(const OptimizerOptions& options,
                                                  const std::vector<NamedParameter>& parameters,
                                                  std::unique_ptr<ElementRule> rule,
                                                  Way way = Way::automatic);

}  // namespace tanren
