// EvalModeScope: puts every module into eval mode and restores each module's own flag at the end,
// so that a frozen batch norm stays frozen. Used by code that runs forwards without training.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace tanren {

class EvalModeScope {
 public:
  explicit EvalModeScope(torch::nn::Module& module) {
    for (auto& child : module.modules()) modes_.emplace_back(child, child->is_training());
    module.eval();
  }
  ~EvalModeScope() {
    // Parents come first in the list, so a child's own flag is set last.
    for (auto& [module, training] : modes_) module->train(training);
  }
  EvalModeScope(const EvalModeScope&) = delete;
  EvalModeScope& operator=(const EvalModeScope&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace tanren
