// Groups a model's parameters into layers by their names: under layer-wise decay, the parameters of
// a layer share a learning rate. Torch-free and pure: the plan uses it to print what the optimizer
// does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct Layers {
  std::vector<int64_t> of;  // layer of each name; 0 is nearest to the input
  int64_t count = 0;
};

// Layers of `names`, given in the model's order. With `patterns`: one layer per pattern or, if it
// contains {}, per number that {} stands for in the names, in rising order; names that no pattern
// matches form one more layer at the end. Without `patterns`: one layer per block (the part of a
// name up to its first number, in order of appearance); names before the first block form the first
// layer, other names without a number the last. ConfigError if a pattern matches no name or no name
// has a number.
Layers layers_of(const std::vector<std::string>& names, const std::vector<std::string>& patterns);

// For each name: decay ^ (number of layers above its own).
std::vector<double> layer_scales(const Layers& layers, double decay);

}  // namespace tanren
