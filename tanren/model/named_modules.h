// A tree of modules out of dotted names ("encoder.layer.0.weight"), so that checkpoints, patterns,
// averages and init_from see the parameters of a model whose computation is elsewhere as they see
// any other's. Called by package.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include <torch/nn/module.h>

namespace tanren {

// An empty one, to which the functions below add. Names have no empty parts, and no tensor has the
// name of a module.
std::shared_ptr<torch::nn::Module> named_modules(const std::string& class_name);
// A tensor that is added under two names is one parameter, with two.
void add_parameter(torch::nn::Module& root, const std::string& name, const at::Tensor& value,
                   bool is_trained);
void add_buffer(torch::nn::Module& root, const std::string& name, const at::Tensor& value);

}  // namespace tanren
