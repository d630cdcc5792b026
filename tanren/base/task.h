// Task: what a user supplies. A module, and phases; a phase is one forward that drives one or more
// objectives. Supervised training has one of each; a GAN has two objectives on one forward.
// Terms come back as sums (terms.h). Nothing here knows about optimizers or precision.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/terms.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/module.h>

namespace tanren {

struct WeightedTerm {
  std::string name;  // of a term that the phase's forward returns
  double weight = 1.0;
};

struct ObjectiveSpec {
  std::string name = "loss";
  std::vector<WeightedTerm> terms;              // empty: every term, weight 1
  std::vector<std::string> parameters = {"*"};  // glob patterns of the parameters it may change
};

struct PhaseSpec {
  std::string name = "train";
  std::function<Terms(const Batch&)> forward;
  std::vector<ObjectiveSpec> objectives = {ObjectiveSpec{}};
};

// What evaluation needs of one batch: the terms, and predictions for the metrics.
struct Prediction {
  Terms terms;
  at::Tensor outputs;  // [n, …]; class scores [n, classes, …]
  at::Tensor targets;  // [n, …]; a class target of -100 is ignored
};

struct Task {
  std::shared_ptr<torch::nn::Module> module;
  std::vector<PhaseSpec> phases;
  std::function<Prediction(const Batch&)> predict;
  std::vector<std::string> metrics;  // what fits its predictions: "accuracy", …
};

}  // namespace tanren
