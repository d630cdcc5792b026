// Shared by this room's tests: the committed fixtures and parameters made from them.
// Included by tests only.
#pragma once

#include "tanren/formats/safetensors.h"
#include "tanren/optimizer/optimizer.h"

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <vector>

namespace tanren::testing {

constexpr int64_t kSteps = 20;

inline const TensorMap& fixture(const std::string& name) {
  static std::map<std::string, TensorMap> files;
  const auto [place, is_new] = files.try_emplace(name);
  if (is_new) {
    place->second =
        read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/" + name + ".safetensors").tensors;
  }
  return place->second;
}

// The parameters of tests/fixtures/make/fixtures.py with their initial values.
inline std::vector<NamedParameter> fixture_parameters(at::ScalarType dtype = at::kFloat) {
  std::vector<NamedParameter> parameters;
  for (const char* name : {"linear.weight", "linear.bias", "conv.weight", "norm.weight"}) {
    const at::Tensor& initial = fixture("optimizer_inputs").at(std::string("initial/") + name);
    parameters.push_back({name, initial.to(dtype).clone().requires_grad_()});
  }
  return parameters;
}

inline at::Tensor fixture_gradient(const NamedParameter& parameter, int64_t step) {
  return fixture("optimizer_inputs")
      .at("gradient/" + parameter.name)[step]
      .to(parameter.tensor.scalar_type());
}

// Copies the gradients of `step` into each parameter's gradient, in the parameter's layout.
inline void set_gradients(const std::vector<NamedParameter>& parameters, int64_t step) {
  for (const NamedParameter& parameter : parameters) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) gradient = at::empty_like(parameter.tensor.detach());
    gradient.copy_(fixture_gradient(parameter, step));
  }
}

inline std::vector<at::Tensor> gradients_of(const std::vector<NamedParameter>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) gradients.push_back(parameter.tensor.grad());
  return gradients;
}

inline std::vector<at::Tensor> values_of(const std::vector<NamedParameter>& parameters) {
  std::vector<at::Tensor> values;
  values.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) {
    values.push_back(parameter.tensor.detach().clone());
  }
  return values;
}

inline bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool equal = a.size() == b.size();
  for (size_t i = 0; equal && i < a.size(); ++i) equal = at::equal(a[i], b[i]);
  return equal;
}

}  // namespace tanren::testing
