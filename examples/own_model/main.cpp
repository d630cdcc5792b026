// A model of your own, registered under a name: a config can plan, train, resume and evaluate it
// like the built-in ones.

#include "tanren/base/error.h"
#include "tanren/cli.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <charconv>

// Images as sequences of rows: mixes along the rows, then along the features of each row.
class RowMixer : public torch::nn::Module {
 public:
  RowMixer(int64_t rows, int64_t columns, int64_t width, int64_t outputs)
      : embed_(register_module("embed", torch::nn::Linear(columns, width))),
        rows_(register_module("rows", torch::nn::Linear(rows, rows))),
        features_(register_module("features", torch::nn::Linear(width, width))),
        head_(register_module("head", torch::nn::Linear(rows * width, outputs))) {}

  at::Tensor forward(const at::Tensor& images) {  // [n, 1, rows, columns]
    at::Tensor x = embed_(images.squeeze(1));     // [n, rows, width]
    x = x + rows_(at::gelu(x).mT()).mT();
    x = x + features_(at::gelu(x));
    return head_(at::gelu(x).flatten(1));  // [n, outputs]
  }

 private:
  torch::nn::Linear embed_, rows_, features_, head_;
};

int64_t width_of(const tanren::ModelOptions& options) {
  const auto found = options.options.find("width");
  if (found == options.options.end()) return 48;
  int64_t width = 0;
  const std::string& text = found->second;
  std::from_chars(text.data(), text.data() + text.size(), width);
  if (width > 0) return width;
  throw tanren::ConfigError("[row_mixer] width is " + text + "; give a number of 1 or more");
}

int main(int argc, char** argv) {
  tanren::ModelRegistry models;
  models.add("row_mixer", [](const tanren::ModelOptions& options, const tanren::DataInfo& info) {
    const auto& shape = info.input_shape;
    if (shape.size() != 3 || shape[0] != 1) {
      throw tanren::ConfigError("[row_mixer] wants grey images; set data.train.shape = [1, h, w]");
    }
    auto module = std::make_shared<RowMixer>(shape[1], shape[2], width_of(options),
                                             tanren::num_outputs(options, info));
    return tanren::supervised(module, options, info);
  });
  return tanren::cli::main(argc, argv, models);
}
