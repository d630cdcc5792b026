// [optimizer] and its tables [[optimizer.groups]].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct GroupOptions {                   // [[optimizer.groups]]
  std::vector<std::string> parameters;  // glob patterns; a parameter joins its first match
  std::optional<double> learning_rate_scale;
  std::optional<double> weight_decay;

  bool operator==(const GroupOptions&) const = default;
};

// optimizer.state: parameters with fewer than kLeastPacked elements keep fp32 moments. 8-bit
// moments have one scale for each block of kPackedBlock elements.
constexpr int64_t kLeastPacked = 4096;
constexpr int64_t kPackedBlock = 256;

struct OptimizerOptions {
  // adamw, adam, nadam, radam, adagrad, rmsprop, adafactor, lion, muon, sgd
  std::string kind = "adamw";
  std::string init_from;  // torch checkpoint whose optimizer state the run starts from
  double learning_rate = 1e-3;
  std::optional<double> weight_decay;  // unset, here and below: by kind, see kinds.h
  double beta1 = 0.9;                  // adamw, adam, nadam, radam, lion, muon
  std::optional<double> beta2;         // the same kinds
  std::optional<double> eps;           // adamw, adam, nadam, radam, adagrad, rmsprop, muon
  std::optional<double> momentum;      // sgd, rmsprop, muon
  double dampening = 0.0;              // sgd
  std::optional<bool> nesterov;        // sgd, muon
  bool decay_norms_and_biases = true;  // false: no weight decay on 1-dim parameters
  std::vector<GroupOptions> groups;
  double layer_decay = 1.0;         // rate of a layer × decay ^ (layers above it); 1: off
  std::vector<std::string> layers;  // patterns from the input to the output; {} is a block's number
  bool amsgrad = false;             // adamw, adam
  std::string state = "fp32";       // adamw, adam: type of the moments: fp32, bf16, 8bit
  std::vector<std::string> fp32_state = {"*embed*", "*wte.*", "*wpe.*"};  // moments that stay fp32
  bool decoupled_weight_decay = false;                                    // nadam, radam
  double momentum_decay = 4e-3;                                           // nadam
  double alpha = 0.99;                                                    // rmsprop
  bool centered = false;                                                  // rmsprop
  double learning_rate_decay = 0.0;                                       // adagrad
  double initial_accumulator = 0.0;                                       // adagrad
  double beta2_decay = -0.8;                                              // adafactor
  double clip_threshold = 1.0;                                            // adafactor
  double scale_floor = 1e-3;                                              // adafactor
  bool relative_step = true;                                              // adafactor
  int64_t newton_schulz_steps = 5;                                        // muon
  std::string adjust_learning_rate = "match_rms_adamw";                   // muon: or original
  std::vector<std::string> adamw_parameters = {"*embed*", "*wte.*",       "*wpe.*",
                                               "*head*",  "*classifier*", "fc.*"};  // muon
};

}  // namespace tanren
