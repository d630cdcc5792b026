// Layers of a model by its parameters' names: which parameters share a learning rate under
// layer-wise decay. Torch-free and pure; the plan prints with it what the optimizer does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct Layers {
  std::vector<int64_t> of;  // per name; 0 is nearest to the input
  int64_t count = 0;
};

// Layers of `names`, given in the model's order. With `patterns`, one layer per pattern, or per
// number that its {} stands for in the names, in rising order; what no pattern matches is one more
// layer at the end. Without, one per block (the part of a name up to its first number, in order of
// appearance); what comes before the first block is the first layer, what else has no number the
// last. ConfigError where a pattern matches no name, or no name has a number.
Layers layers_of(const std::vector<std::string>& names, const std::vector<std::string>& patterns);

// decay ^ (layers above the one of each name).
std::vector<double> layer_scales(const Layers& layers, double decay);

}  // namespace tanren
