#include "tanren/model/bert.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/model/init.h"
#include "tanren/model/supervised.h"
#include "tanren/ops/dropout.h"
#include "tanren/ops/masked_attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace tanren {

namespace {

constexpr const char* kDecoder = "cls.predictions.decoder";

}  // namespace

BertInputs bert_inputs(const Batch& batch) {
  const auto optional = [&](const char* name) {
    const at::Tensor* field = batch.fields.find(name);
    return field != nullptr ? *field : at::Tensor();
  };
  return {batch["inputs"], optional("token_types"), optional("attention_mask")};
}

Bert::Block Bert::make_block(Module& layers, int64_t index, const BertShape& shape) {
  const auto owner = layers.register_module(to_text(index), std::make_shared<Module>("Layer"));
  const auto part = [](Module& parent, const char* name) {
    return parent.register_module(name, std::make_shared<Module>("Part"));
  };
  const auto linear = [](Module& parent, const char* name, int64_t in, int64_t out) {
    return parent.register_module(name, std::make_shared<Linear>(in, out));
  };
  const int64_t width = shape.hidden_size;
  const auto norm = [&](Module& parent) {
    return parent.register_module("LayerNorm",
                                  std::make_shared<LayerNorm>(width, shape.layer_norm_eps));
  };
  Block block;
  block.name = fmt::format("bert.encoder.layer.{}", index);
  block.attention_site = site_id(block.name + ".attention.self");
  block.first_site = site_id(block.name + ".attention.output");
  block.second_site = site_id(block.name + ".output");
  const auto attention = part(*owner, "attention");
  const auto self = part(*attention, "self");
  block.query = linear(*self, "query", width, width);
  block.key = linear(*self, "key", width, width);
  block.value = linear(*self, "value", width, width);
  const auto attention_output = part(*attention, "output");
  block.attention_dense = linear(*attention_output, "dense", width, width);
  block.attention_norm = norm(*attention_output);
  block.intermediate_dense =
      linear(*part(*owner, "intermediate"), "dense", width, shape.intermediate_size);
  const auto output = part(*owner, "output");
  block.output_dense = linear(*output, "dense", shape.intermediate_size, width);
  block.output_norm = norm(*output);
  return block;
}

Bert::Bert(const BertShape& shape)
    : Module("Bert"), shape_(shape), activation_(activation_named(shape.activation)) {
  const auto base = register_module("bert", std::make_shared<Module>("Encoder"));
  const auto embeddings = base->register_module("embeddings", std::make_shared<Module>("Part"));
  const auto embedding = [&](const char* name, int64_t num, int64_t padding) {
    return embeddings->register_module(
        name,
        std::make_shared<Embedding>(num, shape.hidden_size, shape.initializer_range, padding));
  };
  words_ = embedding("word_embeddings", shape.vocab_size, shape.pad_token);
  positions_ = embedding("position_embeddings", shape.context_length, -1);
  types_ = embedding("token_type_embeddings", shape.token_types, -1);
  embedding_norm_ = embeddings->register_module(
      "LayerNorm", std::make_shared<LayerNorm>(shape.hidden_size, shape.layer_norm_eps));
  const auto encoder = base->register_module("encoder", std::make_shared<Module>("Part"));
  const auto layers = encoder->register_module("layer", std::make_shared<Module>("Layers"));
  for (int64_t i = 0; i < shape.num_layers; ++i) {
    blocks_.push_back(make_block(*layers, i, shape));
  }
  if (shape.head == BertHead::classify) {
    const auto pooler = base->register_module("pooler", std::make_shared<Module>("Pooler"));
    pooler_ = pooler->register_module(
        "dense", std::make_shared<Linear>(shape.hidden_size, shape.hidden_size));
  }
  make_head();
  init_linears(*this, shape.initializer_range);
  const at::NoGradGuard no_grad;
  if (shape.pad_token >= 0) words_->weight().select(0, shape.pad_token).zero_();
}

void Bert::make_head() {
  const int64_t width = shape_.hidden_size;
  if (shape_.head == BertHead::classify) {
    classifier_ = register_module("classifier", std::make_shared<Linear>(width, shape_.outputs));
    return;
  }
  const auto owner = register_module("cls", std::make_shared<Module>("Part"));
  const auto head = owner->register_module("predictions", std::make_shared<Module>("MaskedLm"));
  decoder_bias_ = head->register_parameter("bias", at::zeros({shape_.vocab_size}));
  const auto transform = head->register_module("transform", std::make_shared<Module>("Part"));
  transform_ = transform->register_module("dense", std::make_shared<Linear>(width, width));
  transform_norm_ = transform->register_module(
      "LayerNorm", std::make_shared<LayerNorm>(width, shape_.layer_norm_eps));
}

at::Tensor Bert::embed(const BertInputs& inputs) const {
  // Both cases read the table through the embedding operator, because a quantized model keeps the
  // numbers elsewhere, in 8 bits, and replaces that operator.
  const at::Tensor types = types_->forward(
      inputs.token_types.defined() ? inputs.token_types : at::zeros({1, 1}, inputs.ids.options()));
  const at::Tensor positions = positions_->weight().narrow(0, 0, inputs.ids.size(1));
  const at::Tensor sum = words_->forward(inputs.ids) + types + positions;
  return dropout(embedding_norm_->forward(sum), shape_.embedding_dropout,
                 site_id("bert.embeddings"), embedding_norm_->is_training());
}

at::Tensor Bert::block_forward(const Block& block, const at::Tensor& x,
                               const at::Tensor& mask) const {
  const double p = shape_.residual_dropout;
  const at::Tensor q = block.query->forward(x);
  const at::Tensor bias = mask.defined() ? padding_bias(mask, q.scalar_type()) : mask;
  const at::Tensor mixed =
      masked_attention(q, block.key->forward(x), block.value->forward(x), bias, shape_.num_heads,
                       shape_.attention_dropout, block.attention_site, block.query->is_training());
  const at::Tensor middle = block.attention_norm->forward(
      add_dropout(x, block.attention_dense->forward(mixed), p, block.first_site,
                  block.attention_dense->is_training()));
  const at::Tensor inner = activation_(block.intermediate_dense->forward(middle));
  return block.output_norm->forward(add_dropout(middle, block.output_dense->forward(inner), p,
                                                block.second_site,
                                                block.output_dense->is_training()));
}

at::Tensor Bert::states(const BertInputs& inputs) const {
  if (inputs.ids.size(1) > shape_.context_length) {
    throw Error(fmt::format("[model] bert was given {} tokens and has {} positions; cut the input",
                            inputs.ids.size(1), shape_.context_length));
  }
  at::Tensor x = run_block("bert.embeddings", [&] { return embed(inputs); });
  for (const Block& block : blocks_) {
    x = run_block(block.name, x, [this, &block, mask = inputs.mask](const at::Tensor& input) {
      return block_forward(block, input, mask);
    });
  }
  return x;
}

at::Tensor Bert::pooled(const at::Tensor& states) const {
  if (pooler_ == nullptr) {
    throw Error("[model] a bert for masked_lm has no pooler; set model.task = \"classify\"");
  }
  return run_block("bert.pooler", [&] { return pooler_->forward(states.select(1, 0)).tanh(); });
}

TokenHead Bert::head(const BertInputs& inputs) const {
  const at::Tensor x = states(inputs);
  const at::Tensor y = run_block("cls.predictions.transform", [&] {
    return transform_norm_->forward(activation_(transform_->forward(x)));
  });
  return {y, words_->weight(), decoder_bias_};
}

at::Tensor Bert::forward(const BertInputs& inputs) const {
  if (classifier_ != nullptr) {
    const at::Tensor first = pooled(states(inputs));
    return run_block("classifier", [&] {
      return classifier_->forward(dropout(first, shape_.classifier_dropout, site_id("classifier"),
                                          classifier_->is_training()));
    });
  }
  const TokenHead below = head(inputs);
  return run_block(kDecoder, [&] { return below.logits(); });
}

Task bert_task(const ModelOptions& options, const DataInfo& info) {
  const auto model = std::make_shared<Bert>(bert_shape(options, info));
  const auto forward = [model](const Batch& batch) { return model->forward(bert_inputs(batch)); };
  if (model->shape().head == BertHead::classify) {
    return supervised_batches(model, forward, options, info);
  }
  const auto head = [model](const Batch& batch) { return model->head(bert_inputs(batch)); };
  Task task = token_task(model, head, kDecoder, options);
  task.classes = model->shape().vocab_size;
  return task;
}

}  // namespace tanren
