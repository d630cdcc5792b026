#include "tanren/model/named_modules.h"

#include <utility>

namespace tanren {

namespace {

// The module that holds the tensor of that name, made if it is not there, and the name's last part.
std::pair<torch::nn::Module*, std::string> place_of(torch::nn::Module& root,
                                                    const std::string& name) {
  torch::nn::Module* module = &root;
  size_t begin = 0;
  for (size_t end = 0; (end = name.find('.', begin)) != std::string::npos; begin = end + 1) {
    const std::string part = name.substr(begin, end - begin);
    const auto children = module->named_children();
    const auto* found = children.find(part);
    module = found != nullptr ? found->get()
                              : module->register_module(part, named_modules("Named")).get();
  }
  return {module, name.substr(begin)};
}

}  // namespace

std::shared_ptr<torch::nn::Module> named_modules(const std::string& class_name) {
  return std::make_shared<torch::nn::Module>(class_name);
}

void add_parameter(torch::nn::Module& root, const std::string& name, const at::Tensor& value,
                   bool is_trained) {
  const auto [module, own] = place_of(root, name);
  module->register_parameter(own, value, is_trained);
}

void add_buffer(torch::nn::Module& root, const std::string& name, const at::Tensor& value) {
  const auto [module, own] = place_of(root, name);
  module->register_buffer(own, value);
}

}  // namespace tanren
