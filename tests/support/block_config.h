// Small configs of the models that have blocks, for tests of what is applied to blocks.
#pragma once

#include "tests/support/tiny_run.h"

#include <string>

namespace tanren::testing {

// Two blocks or layers, eight samples in two microbatches, dropout 0.2 (convnet: batch norm).
inline RunConfig block_config(const std::string& kind, const std::string& mode) {
  auto config = tiny_config(kind);
  set_precision(config, mode);
  config.batch.global_batch = "8";
  config.batch.microbatch = 4;
  if (kind == "convnet") config.model.norm = "batch";
  if (kind == "gpt2" || kind == "bert" || kind == "lstm") {
    config.model.num_layers = 2;
    config.model.hidden_size = 16;
    config.model.vocab_size = 50;
    config.data.train.fields = {"inputs: int[12] in [0, 49]", "labels: int[] in [0, 4]"};
  }
  if (kind == "gpt2" || kind == "bert") config.model.num_heads = 2;
  if (kind == "gpt2") config.data.train.fields[1] = "labels: int[12] in [0, 49]";
  if (kind != "convnet") config.model.dropout = 0.2;
  return config;
}

}  // namespace tanren::testing
