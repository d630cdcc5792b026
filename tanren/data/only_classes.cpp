#include "tanren/data/only_classes.h"

#include "tanren/base/error.h"
#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

#include <charconv>

namespace tanren {

std::vector<int64_t> keep_classes(TensorMap& fields, DataInfo& info,
                                  const std::vector<std::string>& only, const std::string& where) {
  const at::Tensor* labels = fields.find("labels");
  if (labels == nullptr || !info.class_labels || labels->dim() != 1) {
    throw ConfigError(where + ": only_classes needs one class per sample as \"labels\"; drop it");
  }
  at::Tensor classes = at::full_like(*labels, -1);
  for (size_t i = 0; i < only.size(); ++i) {
    int64_t label = -1;
    const char* const end = only[i].data() + only[i].size();
    const auto parsed = std::from_chars(only[i].data(), end, label);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      throw ConfigError(where + ": only_classes has \"" + only[i] +
                        "\", classes here are whole numbers; name them by these");
    }
    const at::Tensor here = labels->eq(label);
    if (!here.any().item<bool>()) {
      throw DataError(where + ": no sample has the class " + only[i] +
                      " of only_classes; drop it from there");
    }
    classes.masked_fill_(here, static_cast<int64_t>(i));
  }
  const at::Tensor rows = classes.ge(0).nonzero().flatten();
  TensorMap kept;
  for (const auto& [name, field] : fields) {
    kept.set(name, (name == "labels" ? classes : field).index_select(0, rows));
  }
  fields = std::move(kept);
  info.outputs = static_cast<int64_t>(only.size());
  info.class_names = only;
  return numbers_of(rows.contiguous());
}

}  // namespace tanren
