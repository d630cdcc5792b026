// tensors: a safetensors file whose tensors share dim 0; their names become batch fields.
#include "tanren/base/error.h"
#include "tanren/base/safetensors.h"
#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

namespace tanren {

std::unique_ptr<Dataset> open_tensors(const SourceOptions& options, const std::string& what) {
  TensorMap fields = read_safetensors(options.path).tensors;
  DataInfo info;
  for (const auto& [name, tensor] : fields) {
    if (tensor.is_floating_point() && !at::isfinite(tensor).all().item<bool>()) {
      throw DataError("[" + what + "] " + options.path + ": tensor " + name +
                      " holds non-finite values; replace or drop those samples");
    }
  }
  if (const auto* inputs = fields.find("inputs"); inputs != nullptr && inputs->dim() > 0) {
    info.input_shape = inputs->sizes().slice(1).vec();
  }
  if (const auto* labels = fields.find("labels"); labels != nullptr && labels->dim() > 0) {
    info.class_labels = !labels->is_floating_point();
    if (!info.class_labels) {
      info.outputs = labels->size(0) > 0 ? labels->numel() / labels->size(0) : 1;
    } else if (labels->numel() > 0) {
      const auto low = labels->min().item<int64_t>(), high = labels->max().item<int64_t>();
      info.outputs = options.classes > 0 ? options.classes : high + 1;
      if (low < 0 || high >= info.outputs) {
        const auto bad = ((*labels < 0) | (*labels >= info.outputs)).flatten().to(at::kByte).argmax();
        const auto row = bad.item<int64_t>();
        throw DataError("[" + what + "] " + options.path + ": label " +
                        std::to_string(labels->flatten()[row].item<int64_t>()) + " of row " +
                        std::to_string(row) + " is out of range [0, " + std::to_string(info.outputs) +
                        "); mend it or set " + what + ".classes");
      }
      fields.set("labels", labels->to(at::kLong));
    }
  }
  return std::make_unique<TensorDataset>(std::move(fields), info, what);
}

}  // namespace tanren
