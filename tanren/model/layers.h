// The layers of the zoo, built on at:: functions, with torch's parameter and buffer names and its
// default initialisation (the same values from the same generator state). They include only Module
// of torch/nn, because its other headers add seconds to each file's build. Modules are not
// thread-safe.
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

namespace tanren {

using Module = torch::nn::Module;

// y = x Wᵀ + b over the last dim. `weight` [out, in], `bias` [out].
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out);
  at::Tensor forward(const at::Tensor& x) const;
  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }

 private:
  at::Tensor weight_, bias_;
};

struct Conv2dOptions {
  int64_t in = 0;
  int64_t out = 0;
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 0;
  bool bias = true;
};

// [n, in, h, w] → [n, out, h', w']. `weight` [out, in, kernel, kernel], `bias` [out].
class Conv2d : public Module {
 public:
  explicit Conv2d(const Conv2dOptions& options);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Conv2dOptions options_;
  at::Tensor weight_, bias_;
};

// [n, in, h, w] → [n, out, 2 h, 2 w] by a transposed convolution of stride 2 with a 3 × 3 kernel.
// `weight` [in, out, 3, 3], `bias` [out].
class ConvTranspose2d : public Module {
 public:
  ConvTranspose2d(int64_t in, int64_t out);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
};

// Normalises each channel of each sample (Ulyanov et al., 2016), without weights. As torch's
// InstanceNorm2d, but a channel of one pixel becomes 0 where torch refuses it.
at::Tensor instance_norm(const at::Tensor& x);
// Pads height and width by mirrored pixels, of which there must be more than `padding`. Keeps the
// dtype, also under autocast.
at::Tensor reflection_pad(const at::Tensor& x, int64_t padding);

// Normalises groups of channels of each sample (Wu & He, 2018). `weight`, `bias` [channels].
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t groups, int64_t channels);  // groups must divide channels
  at::Tensor forward(const at::Tensor& x) const;

 private:
  int64_t groups_;
  at::Tensor weight_, bias_;
};

// Normalises each channel over the batch (Ioffe & Szegedy, 2015), so it couples samples. Buffers
// `running_mean`, `running_var`, `num_batches_tracked` change in a training forward.
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t channels);
  at::Tensor forward(const at::Tensor& x) { return normalise(x, /*relu=*/false, {}); }
  // relu(norm + residual) in as few passes as possible; residual: shaped as x, or undefined.
  at::Tensor forward_relu(const at::Tensor& x, const at::Tensor& residual = {}) {
    return normalise(x, /*relu=*/true, residual);
  }

  double momentum = 0.1;  // share of the newest batch in the running statistics

 private:
  at::Tensor normalise(const at::Tensor& x, bool relu, const at::Tensor& residual);

  at::Tensor weight_, bias_, running_mean_, running_var_, num_batches_tracked_;
};

// A function of one tensor: "relu" (also for an empty name), "gelu" (exact), "gelu_tanh" (its tanh
// approximation), "tanh", "silu". ConfigError for another name.
using Activation = at::Tensor (*)(const at::Tensor&);
Activation activation_named(const std::string& name);

// A norm's module and the function that applies it.
struct Norm {
  std::shared_ptr<Module> module;  // null for "none"
  std::function<at::Tensor(const at::Tensor&)> forward;
};
// "batch", "group" (the most groups up to 8 that divide `channels`), "none"; ConfigError otherwise.
Norm make_norm(const std::string& kind, int64_t channels);

}  // namespace tanren
