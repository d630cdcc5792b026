// tanren with one more model, whose dropout is torch's own: it draws from the process's generator. Each
// rank writes what it drew in training to $TORCH_DROPOUT_DRAWS<rank>, a line per forward. For
// launched_test.
#include "tanren/base/dry_scope.h"
#include "tanren/cli.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace {

class TorchDropout : public torch::nn::Module {
 public:
  TorchDropout(int64_t inputs, int64_t outputs)
      : linear_(register_module("linear", torch::nn::Linear(inputs, outputs))) {}

  at::Tensor forward(const at::Tensor& inputs) {
    const at::Tensor dropped = at::dropout(inputs.flatten(1), 0.5, is_training());
    const char* file = std::getenv("TORCH_DROPOUT_DRAWS");
    const char* rank = std::getenv("RANK");
    if (is_training() && !tanren::is_dry(dropped) && file != nullptr && rank != nullptr) {
      std::ofstream(file + std::string(rank), std::ios::app)
          << dropped.ne(0)
                 .sum(0)
                 .to(at::kDouble)
                 .dot(at::arange(dropped.size(1), at::kDouble))
                 .item<double>()
          << "\n";
    }
    return linear_(dropped);
  }

 private:
  torch::nn::Linear linear_;
};

}  // namespace

int main(int argc, char** argv) {
  tanren::ModelRegistry models;
  models.add(
      "torch_dropout", [](const tanren::ModelOptions& options, const tanren::DataInfo& info) {
        int64_t inputs = 1;
        for (const int64_t size : info.input_shape) inputs *= size;
        auto module = std::make_shared<TorchDropout>(inputs, tanren::num_outputs(options, info));
        return tanren::supervised(module, options, info);
      });
  return tanren::cli::main(argc, argv, models);
}
