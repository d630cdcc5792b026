// gpt2: the decoder-only transformer of Radford et al. (2019), pre-norm, with learned positions and
// the token embedding as its head, or a classifier on the last token. Parameter names, layouts and
// initialisation are Hugging Face's GPT2LMHeadModel and GPT2ForSequenceClassification:
// `transformer.wte.weight`, `transformer.h.0.attn.c_attn.weight` [in, out], `score.weight`.
#pragma once

#include "tanren/model/gpt2_shape.h"
#include "tanren/model/token_layers.h"

#include "tanren/base/task.h"
#include "tanren/model/losses.h"

#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Keys and values of the tokens seen so far, so that each new token costs one position. For
// generation: eval mode, no gradients.
struct Gpt2Cache {
  std::vector<at::Tensor> keys, values;  // one per block, [n, heads, context_length, d]
  int64_t length = 0;                    // tokens in it
};

class Gpt2 : public Module {
 public:
  explicit Gpt2(const Gpt2Shape& shape);

  // ids int64 [n, T], T up to context_length → the states after the last norm, [n, T, hidden_size].
  // With a cache, ids continue the cached tokens and are added to the cache.
  at::Tensor states(const at::Tensor& ids, Gpt2Cache* cache = nullptr) const;
  // States → scores of the next token, [n, T, vocab_size].
  at::Tensor logits(const at::Tensor& states) const;
  TokenHead head(const at::Tensor& ids) const { return {states(ids), wte_->weight(), {}}; }
  at::Tensor forward(const at::Tensor& ids) const { return logits(states(ids)); }
  // The classifier's scores [n, outputs] at the last token whose `mask` [n, T] is not 0 (undefined:
  // at the last position). Padding comes after the tokens, where causal attention does not see it.
  at::Tensor classify(const at::Tensor& ids, const at::Tensor& mask) const;

  const Gpt2Shape& shape() const { return shape_; }

 private:
  struct Block {
    std::string name;
    size_t index;
    uint64_t attention_site, first_site, second_site;  // dropout sites
    std::shared_ptr<LayerNorm> ln_1, ln_2;
    std::shared_ptr<Projection> c_attn, attn_c_proj, c_fc, mlp_c_proj;
  };

  static Block make_block(Module& layers, size_t index, const Gpt2Shape& shape);
  at::Tensor block_forward(const Block& block, const at::Tensor& x, Gpt2Cache* cache) const;

  Gpt2Shape shape_;
  std::shared_ptr<Embedding> wte_, wpe_;
  std::vector<Block> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;
  at::Tensor score_;  // [outputs, hidden_size]; undefined in a language model
};

// The task of model.kind = "gpt2". model.task = "classify": "inputs", "attention_mask" if the batch
// has one, "labels" and loss as supervised(). "next_token": batch["inputs"] and ["labels"], int64
// [n, T], labels already shifted by one; the loss is summed over the labels that are not -100 and
// counted by "tokens". ConfigError as gpt2_shape.
Task gpt2_task(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
