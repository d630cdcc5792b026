// TorchScript modules, made in C++ as Python's torch.jit.script would make them. For tests.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <string>

namespace tanren::testing {

// A module of a new class, in training mode, without parameters and methods.
inline torch::jit::Module script_module(const std::string& name) {
  torch::jit::Module module("__torch__." + name);
  module.register_attribute("training", c10::BoolType::get(), true);
  return module;
}

// With weight [outputs, inputs] and bias.
inline torch::jit::Module script_linear(const std::string& name, int64_t inputs, int64_t outputs) {
  torch::jit::Module module = script_module(name);
  const auto parameter = [&](const char* own, const at::Tensor& value) {
    module.register_parameter(own, value.set_requires_grad(true), /*is_buffer=*/false);
  };
  parameter("weight", at::randn({outputs, inputs}) * 0.1);
  parameter("bias", at::zeros({outputs}));
  module.define("def forward(self, x):\n  return torch.linear(x, self.weight, self.bias)\n");
  return module;
}

// Scores [n, 5] of pictures [n, 1, 8, 8], through 16 numbers in `layer`. `between` changes these
// numbers, x, before `head` reads them.
inline torch::jit::Module script_classifier(const std::string& between = "torch.tanh(x)") {
  torch::jit::Module module = script_module("Classifier");
  module.register_module("layer", script_linear("Layer", 64, 16));
  module.register_module("head", script_linear("Head", 16, 5));
  module.define(
      "def forward(self, inputs):\n"
      "  x = self.layer.forward(torch.flatten(inputs, 1))\n"
      "  x = " +
      between + "\n  return self.head.forward(x)\n");
  return module;
}

}  // namespace tanren::testing
