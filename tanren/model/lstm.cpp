#include "tanren/model/lstm.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/blocks/block.h"
#include "tanren/model/generate.h"
#include "tanren/model/init.h"
#include "tanren/model/supervised.h"
#include "tanren/ops/dropout.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <fmt/ranges.h>

#include <cmath>
#include <tuple>
#include <utility>

namespace tanren {

namespace {

constexpr const char* kHeadName = "head";

void check_data(const LstmShape& shape, const DataInfo& info) {
  const size_t dims = info.vocab_size > 0 ? 1 : 2;
  if (info.input_shape.size() != dims) {
    throw ConfigError(
        fmt::format("[model] lstm reads a sequence of tokens [T] or of vectors [T, features] a "
                    "sample, inputs have shape [{}]; set data.train.shape",
                    fmt::join(info.input_shape, ", ")));
  }
  if (info.vocab_size == 0 && info.input_shape[1] == kAnySize) {
    throw ConfigError(
        "[model] lstm reads vectors of one width, and those of this data vary; pad them");
  }
  if (shape.next_token && info.vocab_size < 1) {
    throw ConfigError(
        "[model] lstm needs tokens to guess the next one, and this data has none; set model.task = "
        "\"classify\"");
  }
  if (shape.next_token && shape.bidirectional) {
    throw ConfigError(
        "[model] a bidirectional lstm has seen the next token already; set model.bidirectional = "
        "false");
  }
  if (shape.vocab_size < info.vocab_size) {
    throw ConfigError(
        fmt::format("[model] vocab_size {} is smaller than the data's {} tokens; set "
                    "model.vocab_size = 0 to take the data's",
                    shape.vocab_size, info.vocab_size));
  }
  if (info.vocab_size > 0 && shape.pad_token >= shape.vocab_size) {
    throw ConfigError(
        fmt::format("[model] pad_token {} is none of the vocab_size {} tokens; set -1 for none",
                    shape.pad_token, shape.vocab_size));
  }
}

// [n, T]: the positions of each row's real inputs in reverse, then its padding.
at::Tensor reverse_order(const at::Tensor& mask, at::IntArrayRef sizes, at::Device device) {
  const at::Tensor places = at::arange(sizes[1], at::device(device).dtype(at::kLong));
  if (!mask.defined()) return (sizes[1] - 1 - places).expand({sizes[0], sizes[1]});
  const at::Tensor lengths = mask.ne(0).sum(1, /*keepdim=*/true);
  return at::where(places < lengths, lengths - 1 - places, places);
}

// Rows of x [n, T, width] in the order [n, T].
at::Tensor reordered(const at::Tensor& x, const at::Tensor& order) {
  return x.gather(1, order.unsqueeze(2).expand({-1, -1, x.size(2)}));
}

// Silences cuDNN. If the four weights are not in one piece of memory, it copies them and warns at
// each call.
class NoWarnings final : public c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// One direction of one layer: [n, T, in] → [n, T, hidden]. It starts from the state `carried` and
// updates it, or starts at 0 without one. `train` is set on cuDNN in every mode of the module,
// because only then cuDNN keeps the data that backward needs.
at::Tensor pass(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                std::pair<at::Tensor, at::Tensor>* carried = nullptr) {
  const at::Tensor zero = at::zeros({1, x.size(0), weights[1].size(1)}, x.options());
  const bool follows = carried != nullptr && carried->first.defined();
  const at::Tensor h = follows ? carried->first.to(x.scalar_type()) : zero;
  const at::Tensor c = follows ? carried->second.to(x.scalar_type()) : zero;
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard quiet(&none);
  const bool train = !x.device().is_cpu() && carried == nullptr;
  const auto [outputs, last_h, last_c] =
      at::lstm(x, {h, c}, weights, /*has_biases=*/true, /*num_layers=*/1,
               /*dropout=*/0.0, train, /*bidirectional=*/false, /*batch_first=*/true);
  if (carried != nullptr) *carried = {last_h, last_c};
  return outputs;
}

class LstmReader : public TokenReader {
 public:
  explicit LstmReader(const Lstm& model) : model_(model) {}

  void forget() override { carry_ = {}; }
  void reorder(const at::Tensor& rows) override {
    for (auto& [h, c] : carry_.layers) {
      h = h.index_select(1, rows.to(h.device()));
      c = c.index_select(1, rows.to(c.device()));
    }
  }
  at::Tensor read(const at::Tensor& ids) override {
    return model_.next_scores(ids.to(model_.parameters().front().device()), carry_);
  }

 private:
  const Lstm& model_;
  LstmCarry carry_;
};

}  // namespace

LstmShape lstm_shape(const ModelOptions& options, const DataInfo& info) {
  LstmShape shape;
  if (!options.task.empty() && options.task != "classify" && options.task != "next_token") {
    throw ConfigError("[model] lstm has no task '" + options.task +
                      "'; set classify or next_token");
  }
  shape.next_token = options.task == "next_token";
  shape.bidirectional = options.bidirectional;
  if (options.hidden_size > 0) shape.hidden_size = options.hidden_size;
  shape.embedding_size = options.embedding_size > 0 ? options.embedding_size : shape.hidden_size;
  if (options.num_layers > 0) shape.num_layers = options.num_layers;
  shape.pad_token = options.pad_token.value_or(-1);
  shape.dropout = options.dropout.value_or(0);
  shape.embedding_dropout = options.embedding_dropout.value_or(shape.dropout);
  shape.classifier_dropout = options.classifier_dropout.value_or(shape.dropout);
  shape.initializer_range = options.initializer_range.value_or(shape.initializer_range);
  if (info.vocab_size > 0) {
    shape.vocab_size = options.vocab_size > 0 ? options.vocab_size : info.vocab_size;
  }
  check_data(shape, info);
  if (shape.vocab_size == 0) shape.features = info.input_shape[1];
  shape.outputs = shape.next_token ? shape.vocab_size : num_outputs(options, info);
  return shape;
}

Lstm::Lstm(const LstmShape& shape) : Module("Lstm"), shape_(shape) {
  int64_t in = shape.features;
  if (shape.vocab_size > 0) {
    in = shape.embedding_size;
    embedding_ = register_module(
        "embedding", std::make_shared<Embedding>(shape.vocab_size, in, shape.initializer_range,
                                                 shape.pad_token));
    const at::NoGradGuard no_grad;
    if (shape.pad_token >= 0) embedding_->weight().select(0, shape.pad_token).zero_();
  }
  recurrent_ = register_module("lstm", std::make_shared<Module>("LSTM"));
  const int64_t hidden = shape.hidden_size, gates = 4 * hidden;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  for (int64_t i = 0; i < shape.num_layers; ++i) {
    const auto direction = [&](const std::string& suffix) {
      const auto make = [&](const char* name, std::vector<int64_t> sizes) {
        return recurrent_->register_parameter(name + suffix, draw_uniform(at::empty(sizes), bound));
      };
      at::Tensor w_ih = make("weight_ih_l", {gates, in}),
                 w_hh = make("weight_hh_l", {gates, hidden});
      at::Tensor b_ih = make("bias_ih_l", {gates}), b_hh = make("bias_hh_l", {gates});
      return std::vector<at::Tensor>{w_ih, w_hh, b_ih, b_hh};
    };
    Layer layer;
    layer.name = fmt::format("lstm.l{}", i);
    layer.site = site_id(layer.name);
    layer.ahead = direction(to_text(i));
    if (shape.bidirectional) layer.behind = direction(fmt::format("{}_reverse", i));
    layers_.push_back(std::move(layer));
    in = hidden * (shape.bidirectional ? 2 : 1);
  }
  head_ = register_module("head", std::make_shared<Linear>(in, shape.outputs));
}

at::Tensor Lstm::layer_forward(size_t index, const at::Tensor& x, const at::Tensor& order,
                               LstmCarry* carry) const {
  const Layer& layer = layers_[index];
  at::Tensor y = pass(x, layer.ahead, carry != nullptr ? &carry->layers[index] : nullptr);
  if (!layer.behind.empty()) {
    y = at::cat({y, reordered(pass(reordered(x, order), layer.behind), order)}, 2);
  }
  if (index + 1 == layers_.size()) return y;
  return dropout(y, shape_.dropout, layer.site, recurrent_->is_training());
}

at::Tensor Lstm::states(const at::Tensor& inputs, const at::Tensor& mask, LstmCarry* carry) const {
  at::Tensor x = inputs;
  if (embedding_ != nullptr) {
    x = run_block("embedding", [&] {
      return dropout(embedding_->forward(inputs), shape_.embedding_dropout, site_id("embedding"),
                     embedding_->is_training());
    });
  }
  at::Tensor order;
  if (shape_.bidirectional) order = reverse_order(mask, inputs.sizes(), inputs.device());
  if (carry != nullptr) carry->layers.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = run_block(layers_[i].name, x, [this, i, carry, order](const at::Tensor& below) {
      return layer_forward(i, below, order, carry);
    });
  }
  return x;
}

TokenHead Lstm::head_of(const std::function<at::Tensor()>& read) const {
  const at::Tensor x = run_block("head.dropout", [&] {
    return dropout(read(), shape_.classifier_dropout, site_id("head"), head_->is_training());
  });
  return {x, head_->weight(), head_->bias()};
}

TokenHead Lstm::head(const at::Tensor& states) const {
  return head_of([&] { return states; });
}

at::Tensor Lstm::scores(const std::function<at::Tensor()>& read) const {
  const TokenHead below = head_of(read);
  return run_block(kHeadName, [&] { return below.logits(); });
}

at::Tensor Lstm::next_scores(const at::Tensor& ids, LstmCarry& carry) const {
  const at::Tensor x = states(ids, {}, &carry);
  return scores([&] { return x.select(1, x.size(1) - 1); });
}

at::Tensor Lstm::sequence_state(const at::Tensor& states, const at::Tensor& mask) const {
  at::Tensor last = states.select(1, states.size(1) - 1);
  if (mask.defined()) {
    const at::Tensor places = (mask.ne(0).sum(1, /*keepdim=*/true) - 1).clamp_min(0);
    last = reordered(states, places).squeeze(1);
  }
  if (!shape_.bidirectional) return last;
  const int64_t hidden = shape_.hidden_size;
  return at::cat({last.narrow(1, 0, hidden), states.select(1, 0).narrow(1, hidden, hidden)}, 1);
}

at::Tensor Lstm::forward(const at::Tensor& inputs, const at::Tensor& mask) const {
  const at::Tensor x = states(inputs, mask);
  return scores([&] { return shape_.next_token ? x : sequence_state(x, mask); });
}

Task lstm_task(const ModelOptions& options, const DataInfo& info) {
  const auto model = std::make_shared<Lstm>(lstm_shape(options, info));
  const auto mask_of = [](const Batch& batch) {
    const at::Tensor* mask = batch.fields.find("attention_mask");
    return mask != nullptr ? *mask : at::Tensor();
  };
  const auto forward = [model, mask_of](const Batch& batch) {
    const at::Tensor& inputs = batch["inputs"];
    const bool vectors = inputs.is_floating_point();
    return model->forward(vectors ? inputs.to(model->parameters().front().scalar_type()) : inputs,
                          mask_of(batch));
  };
  if (!model->shape().next_token) return supervised_batches(model, forward, options, info);
  const auto head = [model, mask_of](const Batch& batch) {
    return model->head(model->states(batch["inputs"], mask_of(batch)));
  };
  Task task = token_task(model, head, kHeadName, options);
  task.classes = model->shape().vocab_size;
  add_text_metrics(task, options);
  task.generate = [model, vocab = info.vocab_size](const GenerateRequest& request) {
    LstmReader reader(*model);
    return generate(request, kNoContext, vocab, reader);
  };
  return task;
}

}  // namespace tanren
