// Every hyper-parameter of a GPT-2: from the preset (model.size), the config's keys that override
// it, and the data.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

#include <cstdint>

namespace tanren {

struct Gpt2Shape {
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int64_t context_length = 1024;
  int64_t vocab_size = 50257;
  double embedding_dropout = 0.1;
  double attention_dropout = 0.1;
  bool fused_attention_dropout = false;
  double residual_dropout = 0.1;
  double layer_norm_eps = 1e-5;
  double initializer_range = 0.02;
  double label_smoothing = 0;
  int64_t outputs = 0;  // of the classifier; 0: no classifier, the model predicts the next token
};

// ConfigError if the data holds no tokens, or more distinct tokens or longer sequences than the
// model has room for; if num_heads does not divide hidden_size; for an unknown preset or task; or
// as num_outputs.
Gpt2Shape gpt2_shape(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
