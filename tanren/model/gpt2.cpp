#include "tanren/model/gpt2.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/model/generate.h"
#include "tanren/model/init.h"
#include "tanren/model/losses.h"
#include "tanren/model/supervised.h"
#include "tanren/ops/attention.h"
#include "tanren/ops/dropout.h"
#include "tanren/ops/gelu.h"

#include <ATen/ATen.h>

#include <cmath>

namespace tanren {

namespace {

constexpr const char* kHead = "lm_head";

// Adds the new positions to the cache; returns their attention to all cached positions.
at::Tensor cached_attention(const at::Tensor& qkv, size_t block, const Gpt2Shape& shape,
                            Gpt2Cache& cache) {
  const int64_t n = qkv.size(0), length = qkv.size(1), width = shape.hidden_size;
  const int64_t end = cache.length + length;
  auto parts = qkv.split(width, 2);
  for (at::Tensor& part : parts) {
    part = part.view({n, length, shape.num_heads, width / shape.num_heads}).transpose(1, 2);
  }
  if (cache.keys.size() == block) {
    const MemoryScope memory(MemoryKind::key_values);
    const std::vector<int64_t> sizes = {n, shape.num_heads, shape.context_length,
                                        width / shape.num_heads};
    cache.keys.push_back(at::empty(sizes, qkv.options()));
    cache.values.push_back(at::empty(sizes, qkv.options()));
  }
  cache.keys[block].narrow(2, cache.length, length).copy_(parts[1]);
  cache.values[block].narrow(2, cache.length, length).copy_(parts[2]);
  std::optional<at::Tensor> seen;
  if (length > 1) {
    seen = at::ones({length, end}, qkv.options().dtype(at::kBool)).tril_(cache.length);
  }
  return at::scaled_dot_product_attention(parts[0], cache.keys[block].narrow(2, 0, end),
                                          cache.values[block].narrow(2, 0, end), seen)
      .transpose(1, 2)
      .flatten(2);
}

class Gpt2Reader : public TokenReader {
 public:
  explicit Gpt2Reader(const Gpt2& model) : model_(model) {}

  void forget() override { cache_ = {}; }
  void reorder(const at::Tensor& rows) override {
    if (at::equal(rows, at::arange(cache_.keys[0].size(0)))) return;
    const at::Tensor order = rows.to(cache_.keys[0].device());
    const MemoryScope memory(MemoryKind::key_values);
    for (auto* side : {&cache_.keys, &cache_.values}) {
      for (at::Tensor& part : *side) part = part.index_select(0, order);
    }
  }
  at::Tensor read(const at::Tensor& ids) override {
    const at::Tensor states = model_.states(ids.to(model_.parameters().front().device()), &cache_);
    return model_.logits(states.select(1, states.size(1) - 1));
  }

 private:
  const Gpt2& model_;
  Gpt2Cache cache_;
};

}  // namespace

Gpt2::Block Gpt2::make_block(Module& layers, size_t index, const Gpt2Shape& shape) {
  const auto owner = layers.register_module(to_text(index), std::make_shared<Module>("Block"));
  const int64_t width = shape.hidden_size;
  const double std = shape.initializer_range;
  // Layers that add to the residual stream start smaller: there are 2 such sums per block.
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(shape.num_layers));
  Block block;
  block.name = fmt::format("transformer.h.{}", index);
  block.index = index;
  block.attention_site = site_id(block.name + ".attn");
  block.first_site = site_id(block.name + ".attn.c_proj");
  block.second_site = site_id(block.name + ".mlp.c_proj");
  const auto norm = [&] { return std::make_shared<LayerNorm>(width, shape.layer_norm_eps); };
  const auto projection = [](int64_t in, int64_t out, double initial_std) {
    return std::make_shared<Projection>(in, out, initial_std);
  };
  block.ln_1 = owner->register_module("ln_1", norm());
  const auto attn = owner->register_module("attn", std::make_shared<Module>("Attention"));
  block.c_attn = attn->register_module("c_attn", projection(width, 3 * width, std));
  block.attn_c_proj = attn->register_module("c_proj", projection(width, width, residual_std));
  block.ln_2 = owner->register_module("ln_2", norm());
  const auto mlp = owner->register_module("mlp", std::make_shared<Module>("Mlp"));
  block.c_fc = mlp->register_module("c_fc", projection(width, shape.intermediate_size, std));
  block.mlp_c_proj =
      mlp->register_module("c_proj", projection(shape.intermediate_size, width, residual_std));
  return block;
}

Gpt2::Gpt2(const Gpt2Shape& shape) : Module("Gpt2"), shape_(shape) {
  const auto owner = register_module("transformer", std::make_shared<Module>("Transformer"));
  const double std = shape.initializer_range;
  wte_ = owner->register_module(
      "wte", std::make_shared<Embedding>(shape.vocab_size, shape.hidden_size, std));
  wpe_ = owner->register_module(
      "wpe", std::make_shared<Embedding>(shape.context_length, shape.hidden_size, std));
  const auto layers = owner->register_module("h", std::make_shared<Module>("Layers"));
  for (int64_t i = 0; i < shape.num_layers; ++i) {
    blocks_.push_back(make_block(*layers, static_cast<size_t>(i), shape));
  }
  ln_f_ = owner->register_module(
      "ln_f", std::make_shared<LayerNorm>(shape.hidden_size, shape.layer_norm_eps));
  if (shape.outputs > 0) {
    score_ = register_module("score", std::make_shared<Module>("Score"))
                 ->register_parameter("weight",
                                      draw_normal(at::empty({shape.outputs, shape.hidden_size}),
                                                  shape.initializer_range));
  }
}

at::Tensor Gpt2::block_forward(const Block& block, const at::Tensor& x, Gpt2Cache* cache) const {
  const double p = shape_.residual_dropout;
  const at::Tensor qkv = block.c_attn->forward(block.ln_1->forward(x));
  const at::Tensor mixed =
      cache != nullptr
          ? cached_attention(qkv, block.index, shape_, *cache)
          : causal_attention(qkv, shape_.num_heads, shape_.attention_dropout, block.attention_site,
                             block.c_attn->is_training(), shape_.fused_attention_dropout);
  const at::Tensor middle = add_dropout(x, block.attn_c_proj->forward(mixed), p, block.first_site,
                                        block.attn_c_proj->is_training());
  const at::Tensor inner = gelu_tanh(block.c_fc->forward(block.ln_2->forward(middle)));
  return add_dropout(middle, block.mlp_c_proj->forward(inner), p, block.second_site,
                     block.mlp_c_proj->is_training());
}

at::Tensor Gpt2::states(const at::Tensor& ids, Gpt2Cache* cache) const {
  const int64_t length = ids.size(1), begin = cache != nullptr ? cache->length : 0;
  if (begin + length > shape_.context_length) {
    throw Error(fmt::format("[model] gpt2 was given {} tokens and has {} positions; cut the input",
                            begin + length, shape_.context_length));
  }
  at::Tensor x = run_block("transformer.wte", [&] {
    constexpr uint64_t kSite = site_id("transformer.wte");
    const at::Tensor positions = wpe_->weight().narrow(0, begin, length);
    // A tied head gives a dense gradient, to which the sparse gradient of the rows read is added.
    return dropout(wte_->forward(ids, /*sparse_gradient=*/!score_.defined()) + positions,
                   shape_.embedding_dropout, kSite, wte_->is_training());
  });
  for (const Block& block : blocks_) {
    x = run_block(block.name, x, [this, &block, cache](const at::Tensor& input) {
      return block_forward(block, input, cache);
    });
  }
  if (cache != nullptr) cache->length += length;
  return run_block("transformer.ln_f", [&] { return ln_f_->forward(x); });
}

at::Tensor Gpt2::logits(const at::Tensor& states) const {
  return run_block(kHead, [&] { return at::linear(states, wte_->weight()); });
}

at::Tensor Gpt2::classify(const at::Tensor& ids, const at::Tensor& mask) const {
  const at::Tensor x = states(ids);
  return run_block("score", [&] {
    at::Tensor last = x.select(1, x.size(1) - 1);
    if (mask.defined()) {
      const at::Tensor places = at::arange(x.size(1), mask.options().dtype(at::kLong));
      const at::Tensor at = (places * mask.ne(0)).amax(1).view({-1, 1, 1});
      last = x.gather(1, at.expand({-1, 1, x.size(2)})).squeeze(1);
    }
    return at::linear(last, score_);
  });
}

Task gpt2_task(const ModelOptions& options, const DataInfo& info) {
  const auto model = std::make_shared<Gpt2>(gpt2_shape(options, info));
  if (model->shape().outputs > 0) {
    const auto forward = [model](const Batch& batch) {
      const at::Tensor* mask = batch.fields.find("attention_mask");
      return model->classify(batch["inputs"], mask != nullptr ? *mask : at::Tensor());
    };
    return supervised_batches(model, forward, options, info);
  }
  const auto head = [model](const Batch& batch) { return model->head(batch["inputs"]); };
  Task task = token_task(model, head, kHead, options);
  task.classes = model->shape().vocab_size;
  add_text_metrics(task, options);
  task.generate = [model, vocab = info.vocab_size](const GenerateRequest& request) {
    Gpt2Reader reader(*model);
    return generate(request, model->shape().context_length, vocab, reader);
  };
  task.context_length = model->shape().context_length;
  return task;
}

}  // namespace tanren
