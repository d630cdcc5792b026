#include "tanren/model/layer_owners.h"

#include <algorithm>
#include <cctype>

namespace tanren {
namespace {

// "torch::nn::Conv2dImpl" → "Conv2d"
std::string type_of(const torch::nn::Module& module) {
  std::string type = module.name();
  const auto colons = type.substr(0, type.find('<')).rfind("::");
  if (colons != std::string::npos) type.erase(0, colons + 2);
  if (type.size() > 4 && type.compare(type.size() - 4, 4, "Impl") == 0) {
    type.resize(type.size() - 4);
  }
  return type;
}

// "max_pool2d", "MaxPool2d" → "maxpool2d"; "relu_" (in place) → "relu"
std::string squeezed(const std::string& name) {
  std::string text;
  for (const char c : name) {
    if (c != '_') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

bool ends_with_path(const std::string& path, std::string_view name) {
  if (path.size() <= name.size()) return path == name;
  const size_t at = path.size() - name.size();
  return path[at - 1] == '.' && path.compare(at, name.size(), name) == 0;
}

}  // namespace

LayerOwners::LayerOwners(const torch::nn::Module& root) {
  const auto add = [this](auto&& self, const torch::nn::Module& module, const std::string& name,
                          size_t parent) -> void {
    const size_t index = layers_.size();
    const auto own = [&](const auto& tensors) {
      for (const auto& item : tensors) owner_.emplace(item.value().unsafeGetTensorImpl(), index);
    };
    const auto parameters = module.named_parameters(/*recurse=*/false);
    const auto buffers = module.named_buffers(/*recurse=*/false);
    const auto children = module.named_children();
    own(parameters);
    own(buffers);
    layers_.push_back({name, type_of(module), parent,
                       parameters.is_empty() && buffers.is_empty() && children.is_empty()});
    for (const auto& child : children) {
      self(self, *child.value(), name.empty() ? child.key() : name + "." + child.key(), index);
    }
  };
  add(add, root, "", 0);
  taken_.resize(layers_.size());
}

std::optional<size_t> LayerOwners::by_parameter(const OperatorCall& call) {
  std::optional<size_t> found;
  bool all = !call.inputs.empty();
  for (const at::Tensor& input : call.inputs) {
    const auto owner = owner_.find(input.unsafeGetTensorImpl());
    if (owner == owner_.end()) {
      all = false;
    } else if (!found) {
      found = owner->second;
    }
  }
  if (found && all) {  // a transposed weight still belongs to its module
    for (const at::Tensor& output : call.outputs) {
      owner_.emplace(output.unsafeGetTensorImpl(), *found);
      kept_.push_back(output);
    }
  }
  return found;
}

bool LayerOwners::is_inside(size_t layer, size_t container) const {
  while (layer > container) layer = layers_[layer].parent;
  return layer == container;
}

size_t LayerOwners::common(size_t a, size_t b) const {
  while (!is_inside(b, a)) a = layers_[a].parent;
  return a;
}

std::optional<size_t> LayerOwners::plain_layer(const std::string& operator_name, size_t container,
                                               std::optional<size_t> before,
                                               std::optional<size_t> after) {
  const std::string wanted = squeezed(operator_name);
  std::optional<size_t> used;
  for (size_t i = container; i < layers_.size() && is_inside(i, container); ++i) {
    if (!layers_[i].is_plain || squeezed(layers_[i].type) != wanted) continue;
    const bool between = (!before || i > *before) && (!after || *after <= container || i < *after);
    if (between && !taken_[i]) {
      taken_[i] = true;
      return i;
    }
    if (!used) used = i;  // one ReLU that is used several times
  }
  return used;
}

size_t LayerOwners::by_place(const std::string& operator_name, std::optional<size_t> before,
                             std::optional<size_t> after, std::optional<size_t> block) {
  size_t container = before && after ? common(*before, *after) : 0;
  if (before == after && before) container = layers_[*before].parent;  // one layer used twice
  if (block && is_inside(*block, container)) container = *block;
  return plain_layer(operator_name, container, before, after).value_or(container);
}

std::optional<size_t> LayerOwners::block_named(std::string_view name,
                                               std::optional<size_t> outer) const {
  const size_t container = outer.value_or(0);
  std::optional<size_t> found;
  for (size_t i = container; i < layers_.size() && is_inside(i, container); ++i) {
    if (layers_[i].name == name) return i;
    if (!found && ends_with_path(layers_[i].name, name)) found = i;
  }
  return found;
}

}  // namespace tanren
