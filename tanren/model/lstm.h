// lstm: layers of long short-term memory (Hochreiter & Schmidhuber, 1997) over tokens or vectors.
// They classify a sequence or predict its next token. Parameter names below `lstm.`, initialisation
// and numerics are torch.nn.LSTM's. Dropout is counter-based, so the batch split cannot change it.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/model/losses.h"
#include "tanren/model/token_layers.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

struct LstmShape {
  int64_t vocab_size = 0;  // 0: the inputs are vectors
  int64_t features = 0;    // of an input vector
  int64_t embedding_size = 256;
  int64_t hidden_size = 256;
  int64_t num_layers = 1;
  int64_t pad_token = -1;  // its embedding starts at 0 and gets no gradient; -1: none
  bool bidirectional = false;
  double dropout = 0;  // between layers
  double embedding_dropout = 0;
  double classifier_dropout = 0;  // before the head
  double initializer_range = 1;   // of the embedding
  bool next_token = false;
  int64_t outputs = 2;  // classes or values; next_token: the vocabulary
};

// ConfigError if the data is neither tokens nor vectors, or does not fit the config's keys.
LstmShape lstm_shape(const ModelOptions& options, const DataInfo& info);

// The state carried from one piece of a sequence to the next: each layer's last h and c,
// [1, n, hidden_size].
struct LstmCarry {
  std::vector<std::pair<at::Tensor, at::Tensor>> layers;
};

class Lstm : public Module {
 public:
  explicit Lstm(const LstmShape& shape);

  // inputs: ids int64 [n, T], or vectors [n, T, features]. mask [n, T] is 0 at padding, which comes
  // after the real inputs; undefined: no padding. Returns the last layer's outputs, [n, T,
  // directions · hidden_size]; the values at padding are arbitrary. With a carry (not for a
  // bidirectional model) the inputs continue the sequence of the carry, which is then updated.
  at::Tensor states(const at::Tensor& inputs, const at::Tensor& mask,
                    LstmCarry* carry = nullptr) const;
  // Scores of the sequence, [n, outputs], from the last real state of each direction. For
  // next_token: scores after each token, [n, T, outputs].
  at::Tensor forward(const at::Tensor& inputs, const at::Tensor& mask) const;
  // next_token: states, weight and bias that give the scores after each token.
  TokenHead head(const at::Tensor& states) const;
  // next_token: scores after the last of ids [n, T], which continue the carry: [n, outputs].
  at::Tensor next_scores(const at::Tensor& ids, LstmCarry& carry) const;

  const LstmShape& shape() const { return shape_; }

 private:
  struct Layer {
    std::string name;
    uint64_t site;                          // of the dropout after this layer
    std::vector<at::Tensor> ahead, behind;  // w_ih, w_hh, b_ih, b_hh; behind: the reverse pass
  };

  // The layer, and the dropout between it and the next.
  at::Tensor layer_forward(size_t index, const at::Tensor& x, const at::Tensor& order,
                           LstmCarry* carry) const;
  // [n, T, …] → [n, …]: each direction's state after the last real input that it read.
  at::Tensor sequence_state(const at::Tensor& states, const at::Tensor& mask) const;
  // The head on the states that `read` returns. `read` is called inside a block.
  TokenHead head_of(const std::function<at::Tensor()>& read) const;
  at::Tensor scores(const std::function<at::Tensor()>& read) const;

  LstmShape shape_;
  std::shared_ptr<Embedding> embedding_;  // null for vectors
  std::shared_ptr<Module> recurrent_;
  std::vector<Layer> layers_;
  std::shared_ptr<Linear> head_;
};

// The task of model.kind = "lstm" on a batch's "inputs", and its "attention_mask" if it has one.
// model.task = "classify": "labels" and loss as supervised(). "next_token": as gpt2_task.
Task lstm_task(const ModelOptions& options, const DataInfo& info);

}  // namespace tanren
