// Builds a tree of modules from dotted names ("encoder.layer.0.weight"). It is for a model that is
// not computed by its modules: checkpoints, patterns, averages and init_from can handle its
// parameters like those of any other model. Called by package.cpp.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include <torch/nn/module.h>

namespace tanren {

// An empty tree, to which the functions below add. Names must have no empty parts, and no tensor
// may have the name of a module.
std::shared_ptr<torch::nn::Module> named_modules(const std::string& class_name);
// A tensor that is added under two names is one parameter, with two.
void add_parameter(torch::nn::Module& root, const std::string& name, const at::Tensor& value,
                   bool is_trained);
void add_buffer(torch::nn::Module& root, const std::string& name, const at::Tensor& value);

}  // namespace tanren
