// Task: what a user supplies: a module and phases. A phase is one forward that drives one or more
// objectives. Supervised training has one of each; a GAN has two objectives on one forward, or two
// phases of one objective. An update goes over the phases in order, on the same global batch.
// Forwards return terms as sums (terms.h). Nothing here knows about optimizers or precision.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/graph_facts.h"
#include "tanren/base/terms.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
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
  // The objective is updated at every `every`-th global batch. Must be 1 for the first objective of
  // the first phase, because run.step counts its updates.
  int64_t every = 1;
};

struct PhaseSpec {
  std::string name = "train";
  std::function<Terms(const Batch&)> forward;
  // Whether forward reads parameters on the calling thread alone, by libtorch's operators or under
  // an OperatorRecord. If so, with parallel.zero forward begins while later layers' parameters are
  // still on their way; otherwise it waits for all. A kind may declare this for all its phases
  // (KindTraits of model/registry.h).
  bool forward_on_one_thread = false;
  std::vector<ObjectiveSpec> objectives = {ObjectiveSpec{}};
};

// What an evaluation needs for one batch: the terms, and predictions for the metrics. The
// evaluation's loss weights the terms as the objectives do.
struct Prediction {
  Terms terms;
  at::Tensor outputs;  // [n, …]; class scores [n, classes, …]
  at::Tensor targets;  // [n, …]; a class target of -100 is ignored
};

// A prediction in parts, for outputs that are far larger than the batch (the scores of a language
// model). The work that all parts share is done already. Each part is computed when it is
// requested, and its terms cover that part only.
struct PredictionRows {
  int64_t rows = 0;     // of outputs and targets, along dim 0
  int64_t at_once = 1;  // rows that a call of `part` should request
  std::function<Prediction(int64_t begin, int64_t end)> part;
};

// A prompt that a language model continues, and how.
struct GenerateRequest {
  std::vector<int64_t> prompt;  // at least one token
  int64_t tokens = 0;           // how many to add
  double temperature = 1.0;     // logits are divided by it; 0: the most probable token
  int64_t top_k = 0;            // draws among the k most probable tokens only; 0: all
  double top_p = 1.0;           // draws among the fewest that hold this probability, in (0, 1]
  uint64_t seed = 0;
  int64_t num_beams = 1;      // above 1: the most probable continuation by beam search; no draws
  double length_penalty = 1;  // beams: log probability over length to this power
  int64_t stop_token = -1;    // ends the text and is its last token; -1: none
  int64_t vocab = 0;          // draws tokens below it alone; 0: any token of the model
  // Receives each added token as soon as it is final. May be empty. Beam search does not call it,
  // because its tokens are final only at the end. A task need not call it.
  std::function<void(int64_t token)> see = {};
};

// What a plan must know about how the task computes. If a fact has no value, it follows from the
// types of the task's modules (model/couples_samples.h). A compiled graph that replaces the modules
// has no types to read, so its task sets all facts.
struct TaskFacts {
  // Whether results for a sample depend on which others are in its microbatch (batch norm).
  std::optional<bool> couples_samples = {};
  // The module or operator that draws from torch's generator in training, so that its draws do not
  // depend on the sample; empty: none.
  std::optional<std::string> torch_dropout = {};
  // Whether its forwards can run on tensors without values (dry/dry_scope.h). If not, two real
  // steps with few samples measure the memory of a step. A model that reads a value (item) is
  // measured this way in any case.
  bool runs_dry = true;
  // The fewest samples that its forwards need. The two real steps take no fewer.
  int64_t least_samples = 1;
  // Set if one compiled graph, which cannot be changed, computes the task.
  std::optional<GraphFacts> graph = {};
};

struct Task {
  std::shared_ptr<torch::nn::Module> module;
  std::vector<PhaseSpec> phases;
  std::function<Prediction(const Batch&)> predict;
  // An evaluation calls it instead of `predict`. May be empty. The parts' terms sum to predict's.
  std::function<PredictionRows(const Batch&)> predict_rows;
  // Names (glob) of the metrics that fit: class_metrics() of metric_names.h, …
  std::vector<std::string> metrics;
  int64_t classes = 0;  // scores per target in `outputs`; 0: unknown, or no classes
  // Fields that only losses and metrics read. They keep their dtype in runs that store weights in
  // 16 bits and cast batches to 16 bits.
  std::vector<std::string> loss_fields = {};
  // Language models: the prompt with the tokens added. Called in eval mode, without gradients.
  std::function<std::vector<int64_t>(const GenerateRequest&)> generate;
  int64_t context_length = 0;  // tokens that `generate` reads at once; 0: any number
  // The parameters and buffers that a quantisation-aware training has registered beside the weights
  // (quantize/fake_quantization.h).
  std::set<std::string> input_scales = {};
  TaskFacts facts = {};
};

}  // namespace tanren
