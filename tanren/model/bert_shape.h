// Every hyper-parameter of a BERT: a preset, overridden by the config's keys and checked against
// the data. Called by bert.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

#include <cstdint>
#include <string>

namespace tanren {

enum class BertHead { classify, masked_lm };

// The defaults are bert-base's; the vocabulary comes from the preset or the data.
struct BertShape {
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int64_t context_length = 512;
  int64_t token_types = 2;
  int64_t vocab_size = 30522;
  int64_t pad_token = 0;  // its embedding starts at 0 and gets no gradient; -1: none
  double embedding_dropout = 0.1;
  double attention_dropout = 0.1;
  double residual_dropout = 0.1;
  double classifier_dropout = 0.1;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  std::string activation = "gelu";
  BertHead head = BertHead::classify;
  int64_t outputs = 2;  // classes or values of the classifier
};

// ConfigError if the data holds no tokens, or more distinct tokens, more token types or longer
// sequences than the model has room for; if num_heads does not divide hidden_size; for an unknown
// preset or task; or as num_outputs.
BertShape bert_shape(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
