// bert: the bidirectional encoder of Devlin et al. (2018), with a classifier on the pooled first
// token or with the masked language model's tied head. Parameter names, layouts, initialisation and
// numerics are those of Hugging Face's BertForSequenceClassification and BertForMaskedLM.
#pragma once

#include "tanren/model/bert_shape.h"
#include "tanren/model/token_layers.h"

#include "tanren/base/task.h"
#include "tanren/model/losses.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

struct BertInputs {
  at::Tensor ids;          // int64 [n, T]
  at::Tensor token_types;  // int64 [n, T]; undefined: all 0
  at::Tensor mask;         // [n, T], 0 at padding; undefined: no padding
};
// Reads a batch's "inputs", and its "token_types" and "attention_mask" if it has them.
BertInputs bert_inputs(const Batch& batch);

class Bert : public Module {
 public:
  explicit Bert(const BertShape& shape);

  // The states after the last block, [n, T, hidden_size]. Error if T exceeds context_length.
  at::Tensor states(const BertInputs& inputs) const;
  // The first token's state, through the pooler: [n, hidden_size]. Classifier only.
  at::Tensor pooled(const at::Tensor& states) const;
  // States, weight and bias that give each token's scores. Masked language model only.
  TokenHead head(const BertInputs& inputs) const;
  // Class scores [n, outputs], or each token's scores [n, T, vocab_size].
  at::Tensor forward(const BertInputs& inputs) const;

  const BertShape& shape() const { return shape_; }

 private:
  struct Block {
    std::string name;
    uint64_t attention_site, first_site, second_site;  // dropout sites
    std::shared_ptr<Linear> query, key, value, attention_dense, intermediate_dense, output_dense;
    std::shared_ptr<LayerNorm> attention_norm, output_norm;
  };

  static Block make_block(Module& layers, int64_t index, const BertShape& shape);
  void make_head();
  at::Tensor embed(const BertInputs& inputs) const;
  at::Tensor block_forward(const Block& block, const at::Tensor& x, const at::Tensor& mask) const;

  BertShape shape_;
  Activation activation_;
  std::shared_ptr<Embedding> words_, positions_, types_;
  std::shared_ptr<LayerNorm> embedding_norm_;
  std::vector<Block> blocks_;
  std::shared_ptr<Linear> pooler_, classifier_;  // null in a masked language model
  std::shared_ptr<Linear> transform_;            // null in a classifier
  std::shared_ptr<LayerNorm> transform_norm_;
  at::Tensor decoder_bias_;
};

// The task of model.kind = "bert". model.task = "classify": "labels" and loss as supervised().
// "masked_lm": "labels" int64 [n, T], -100 where there is no token to predict; the loss is counted
// by "tokens". ConfigError as bert_shape.
Task bert_task(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
