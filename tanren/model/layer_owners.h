// Finds the module that an operator belongs to (Note [Who owns an operator], layer_table.h). Takes
// names and tensors, gives indices of modules; does not use shapes or counts. Used by layer_table
// only.
#pragma once

#include "tanren/model/layer_calls.h"

#include <torch/nn/module.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

class LayerOwners {
 public:
  struct Layer {
    std::string name;
    std::string type;
    size_t parent = 0;      // the root's parent is the root
    bool is_plain = false;  // no parameter, no buffer, no module inside
  };

  explicit LayerOwners(const torch::nn::Module& root);

  const std::vector<Layer>& layers() const { return layers_; }
  // The module whose parameter or buffer is among the inputs. A result computed from parameters
  // alone (a transposed weight) counts as a parameter of that module.
  std::optional<size_t> by_parameter(const OperatorCall& call);
  // Whether `tensor` is a parameter or buffer, or was computed from them alone.
  bool owns(const at::Tensor& tensor) const {
    return owner_.count(tensor.unsafeGetTensorImpl()) > 0;
  }
  // The module of an operator without parameters: by the owners before and after it, and the block
  // that it runs in.
  size_t by_place(const std::string& operator_name, std::optional<size_t> before,
                  std::optional<size_t> after, std::optional<size_t> block);
  // The module inside `outer` that has the block's name; none if no module has it.
  std::optional<size_t> block_named(std::string_view name, std::optional<size_t> outer) const;

  bool is_inside(size_t layer, size_t container) const;

 private:
  size_t common(size_t a, size_t b) const;
  std::optional<size_t> plain_layer(const std::string& operator_name, size_t container,
                                    std::optional<size_t> before, std::optional<size_t> after);

  std::vector<Layer> layers_;
  std::vector<bool> taken_;                        // plain layers that already own an operator
  std::map<const at::TensorImpl*, size_t> owner_;  // parameters, buffers, results of them alone
  std::vector<at::Tensor> kept_;                   // kept alive so that no address is reused
};

}  // namespace tanren
