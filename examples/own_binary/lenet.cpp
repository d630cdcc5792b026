#include "lenet.h"

#include "tanren/base/error.h"
#include "tanren/model/layers.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>

namespace {

// Uses tanren's own layers, which compile quickly; those of torch::nn work too.
class LeNet : public torch::nn::Module {
 public:
  LeNet(const std::vector<int64_t>& shape, const std::string& activation, int64_t outputs)
      : torch::nn::Module("LeNet"), active_(tanren::activation_named(activation)) {
    conv1_ = convolution("conv1", {.in = shape[0], .out = 6, .kernel = 5, .padding = 2});
    conv2_ = convolution("conv2", {.in = 6, .out = 16, .kernel = 3, .padding = 1});
    // Each pooling halves, rounding down.
    fc1_ = linear("fc1", 16 * (shape[1] / 4) * (shape[2] / 4), 120);
    fc2_ = linear("fc2", 120, 84);
    fc3_ = linear("fc3", 84, outputs);
  }

  at::Tensor forward(const at::Tensor& images) {  // [n, channels, height, width]
    at::Tensor x = at::avg_pool2d(active_(conv1_->forward(images)), 2);
    x = at::avg_pool2d(active_(conv2_->forward(x)), 2);
    x = active_(fc1_->forward(x.flatten(1)));
    return fc3_->forward(active_(fc2_->forward(x)));  // [n, outputs]
  }

 private:
  using Conv2d = std::shared_ptr<tanren::Conv2d>;
  using Linear = std::shared_ptr<tanren::Linear>;

  Conv2d convolution(const std::string& name, const tanren::Conv2dOptions& options) {
    return register_module(name, std::make_shared<tanren::Conv2d>(options));
  }
  Linear linear(const std::string& name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<tanren::Linear>(in, out));
  }

  tanren::Activation active_;
  Conv2d conv1_, conv2_;
  Linear fc1_, fc2_, fc3_;
};

}  // namespace

tanren::Task make_lenet(const tanren::ModelOptions& options, const tanren::DataInfo& info) {
  const auto& shape = info.input_shape;
  if (shape.size() != 3 || shape[1] < 8 || shape[2] < 8) {
    throw tanren::ConfigError("[lenet] wants images of 8 × 8 or more; set data.train.shape");
  }
  const int64_t outputs = tanren::num_outputs(options, info);
  return tanren::supervised(std::make_shared<LeNet>(shape, options.activation, outputs), options,
                            info);
}
