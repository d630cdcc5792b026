// mlp: hidden layers of options.hidden widths, each linear → activation → dropout, then a linear
// head. Inputs of any shape [n, …] are flattened. Parameters `hidden.<i>.weight`, `head.weight`, ….
#pragma once

#include "tanren/model/layers.h"

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"

namespace tanren {

class Mlp : public Module {
 public:
  // The model has `info.outputs` outputs. ConfigError for widths below 1 or unknown names.
  Mlp(const ModelOptions& options, const DataInfo& info);
  at::Tensor forward(const at::Tensor& input) const;

 private:
  struct Hidden {
    std::string name;
    uint64_t site;
    std::shared_ptr<Linear> linear;
  };

  Activation activation_;
  double dropout_;
  std::vector<Hidden> hidden_;
  std::shared_ptr<Linear> head_;
};

}  // namespace tanren
