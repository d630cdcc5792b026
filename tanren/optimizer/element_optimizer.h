// Element optimizer: groups, step counts, state and skipping around one element rule.
// Called by make_optimizer; tests choose the way.
#pragma once

#include "tanren/optimizer/element_rule.h"
#include "tanren/optimizer/optimizer.h"

namespace tanren {

// automatic: one pass if the parameters are on the CPU in fp32 or fp64, else foreach.
enum class Way { automatic, foreach };

// A skip flag is read on the host: if one is given, step() reads the device once.
std::unique_ptr<Optimizer> make_element_optimizer(const OptimizerOptions& options,
                                                  const std::vector<NamedParameter>& parameters,
                                                  std::unique_ptr<ElementRule> rule,
                                                  Way way = Way::automatic);

}  // namespace tanren
