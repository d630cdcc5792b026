#include "tanren/base/row_of_nan.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"

#include <ATen/ATen.h>

#include <string>

namespace tanren {

void refuse_row_of_nan(std::string_view name, const at::Tensor& tensor) {
  const bool is_row = tensor.is_floating_point() && tensor.dim() > 0 && tensor.numel() > 0 &&
                      !tensor.is_meta() && tensor.stride(0) == 0;
  if (!is_row || !tensor.detach().select(0, 0).to(at::kFloat).isnan().all().item<bool>()) return;
  throw InputError("[quantize] " + one_line(name) +
                   " stands for a weight in 8 bits, whose numbers are not here; write them with "
                   "write_whole_model and its parameters, or give the model before it was "
                   "quantised");
}

}  // namespace tanren
