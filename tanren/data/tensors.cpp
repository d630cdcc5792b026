// tensors: a safetensors file whose tensors share dim 0; their names become batch fields.
#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/data/dataset.h"
#include "tanren/data/only_classes.h"
#include "tanren/data/split.h"
#include "tanren/data/text/token_fields.h"
#include "tanren/formats/safetensors.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

namespace tanren {

namespace {

// The first sample (dim 0) that holds a true in `bad`; -1 if there is none.
int64_t first_row(const at::Tensor& bad) {
  if (bad.numel() == 0 || !bad.any().item<bool>()) return -1;
  return bad.reshape({bad.size(0), -1}).any(1).to(at::kByte).argmax().item<int64_t>();
}

void check_finite(const std::string& name, const at::Tensor& tensor, const std::string& where) {
  // One NaN or infinity makes the sum non-finite. Large numbers can too, so then check every
  // element.
  if (std::isfinite(tensor.sum().item<double>())) return;
  const int64_t row = first_row(at::isfinite(tensor).logical_not());
  if (row < 0) return;
  throw DataError(fmt::format(
      "{}: tensor {} holds NaN or infinity in row {}; replace or drop non-finite values", where,
      name, row));
}

// Returns the classes as int64, all in [0, outputs); outputs becomes one more than the largest if
// not given.
at::Tensor checked_classes(const at::Tensor& labels, int64_t& outputs, const std::string& what,
                           const std::string& where) {
  at::Tensor classes = labels.to(at::kLong);
  // A larger class is a mistake: a model would have that many outputs.
  if (outputs <= 0) outputs = std::min(classes.max().item<int64_t>(), kMaxUnannouncedClass - 1) + 1;
  const at::Tensor bad = (classes < 0).logical_or(classes >= outputs);
  const int64_t row = first_row(bad);
  if (row < 0) return classes;
  const auto value = classes[row].masked_select(bad[row])[0].item<int64_t>();
  throw DataError(
      fmt::format("{}: label {} of row {} is out of range [0, {}); fix it or set {}{}.classes",
                  where, value, row, std::max<int64_t>(outputs, 0),
                  what == "data.eval" ? "data.train.classes and " : "", what));
}

// The hash of each row's bytes in all tensors, in the order of their names in the file. Empty if
// the tensors differ in dim 0, i.e. in their number of rows.
std::vector<uint64_t> tensor_row_hashes(const TensorMap& fields) {
  const int64_t rows =
      fields.empty() || fields.begin()->second.dim() == 0 ? 0 : fields.begin()->second.size(0);
  if (rows == 0) return {};
  std::vector<at::Tensor> whole;
  std::vector<std::string_view> bytes;
  for (const auto& [name, field] : fields) {
    if (field.dim() == 0 || field.size(0) != rows) return {};
    const at::Tensor& kept = whole.emplace_back(field.contiguous());
    bytes.emplace_back(static_cast<const char*>(kept.const_data_ptr()),
                       static_cast<size_t>(kept.nbytes()));
  }
  std::vector<uint64_t> hashes(static_cast<size_t>(rows)), of_fields(bytes.size());
  for (size_t row = 0; row < hashes.size(); ++row) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      const size_t width = bytes[i].size() / hashes.size();
      of_fields[i] = split_hash(bytes[i].substr(row * width, width));
    }
    hashes[row] = split_hash(std::string_view(reinterpret_cast<const char*>(of_fields.data()),
                                              of_fields.size() * sizeof of_fields[0]));
  }
  return hashes;
}

}  // namespace

std::unique_ptr<Dataset> open_tensors(const SourceOptions& options, const std::string& what,
                                      const DataInfo* /*train*/) {
  const std::string where = "[" + what + "] " + options.path;
  TensorMap fields;
  DataInfo info;
  const SafetensorsFile file = read_safetensors(options.path);
  for (const auto& [name, tensor] : file.tensors) {
    const bool floating = tensor.is_floating_point();
    fields.set(name, floating ? tensor.to(at::kFloat) : tensor);
    const bool ignored = options.ignores_labels && name == "labels";
    if (floating && tensor.dim() > 0 && !ignored) check_finite(name, fields.at(name), where);
  }
  if (const auto* inputs = fields.find("inputs"); inputs != nullptr && inputs->dim() > 0) {
    info.input_shape = inputs->sizes().slice(1).vec();
  }
  const bool has_token_labels = describe_tokens(fields, info, where);
  const auto* labels = fields.find("labels");
  if (!has_token_labels && labels != nullptr && labels->dim() > 0 && labels->numel() > 0) {
    info.class_labels = !labels->is_floating_point();
    info.outputs = info.class_labels ? options.classes : labels->numel() / labels->size(0);
    if (info.class_labels && !options.ignores_labels) {
      fields.set("labels", checked_classes(*labels, info.outputs, what, where));
    }
  }
  std::vector<uint64_t> hashes =
      options.split > 0 ? tensor_row_hashes(fields) : std::vector<uint64_t>();
  if (!options.only_classes.empty()) {
    info.class_labels = info.class_labels && !has_token_labels;
    hashes = hashes_of(hashes, keep_classes(fields, info, options.only_classes, where));
  }
  return std::make_unique<TensorDataset>(std::move(fields), info, what, std::move(hashes));
}

}  // namespace tanren
