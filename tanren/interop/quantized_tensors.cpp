#include "tanren/interop/quantized_tensors.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/interop/export.h"

#include <fmt/ranges.h>
#include <ATen/ATen.h>

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

// compressed-tensors' bytes are signed and ours are unsigned. The zero points differ by this
// number.
constexpr int32_t kSignedZero = 128;

std::string quantized_advice() { return "; write the file again"; }

// Tensors by name, for files with many.
class TensorIndex {
 public:
  explicit TensorIndex(const TensorMap& tensors) {
    for (const auto& [name, tensor] : tensors) by_name_.emplace(name, &tensor);
  }
  const at::Tensor* find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<std::string, const at::Tensor*> by_name_;
};

// The tensors of one parameter in a file. Dtypes and shapes are right, the elements not yet read.
struct StoredParameter {
  at::Tensor values, scale;
  at::Tensor input_scale, input_zero_point;  // or neither
};

class StoredParameters {
 public:
  StoredParameters(const TensorMap& tensors, const QuantizeNote& note, std::string what)
      : index_(tensors), what_(std::move(what)) {
    for (const auto& [parameter, reader] : note.readers) {
      const QuantizedNames names = quantized_names(parameter);
      for (const std::string* name : {&names.scale, &names.input_scale, &names.input_zero_point}) {
        beside_.insert(*name);
      }
    }
    for (const auto& [parameter, reader] : note.readers) {
      if (beside_.count(parameter) > 0) refuse(parameter, "also belongs to another 8-bit weight");
    }
  }

  StoredParameter find(const std::string& parameter, WeightReader reader) const {
    const QuantizedNames names = quantized_names(parameter);
    StoredParameter stored;
    stored.values = wanted(parameter);
    const int64_t dims = reader == WeightReader::convolution ? 4 : 2;
    if (stored.values.scalar_type() != at::kChar || stored.values.dim() != dims) {
      refuse(parameter, fmt::format("is {} {}, and the weight of this {} is int8 with {} dims",
                                    c10::toString(stored.values.scalar_type()),
                                    stored.values.sizes().vec(), name(reader), dims));
    }
    stored.scale = wanted(names.scale);
    if (stored.scale.dim() != 2 || stored.scale.size(0) != stored.values.size(0)) {
      refuse(names.scale, fmt::format("has shape {} for values of shape {}",
                                      stored.scale.sizes().vec(), stored.values.sizes().vec()));
    }
    const at::Tensor* scale = index_.find(names.input_scale);
    const at::Tensor* zero_point = index_.find(names.input_zero_point);
    if (scale == nullptr && zero_point == nullptr) return stored;
    if (reader == WeightReader::embedding) refuse(parameter, "is a table and has an input scale");
    const auto sizes = stored.values.sizes();
    const bool is_convolution = reader == WeightReader::convolution;
    if (is_convolution && (sizes[2] != sizes[3] || stored.scale.size(1) != 1)) {
      refuse(
          parameter,
          fmt::format("is a convolution's weight of shape {} with an input scale and {} scales a "
                      "channel, and such a one has a square kernel and one",
                      sizes.vec(), stored.scale.size(1)));
    }
    stored.input_scale = one_number(names.input_scale, at::kFloat);
    stored.input_zero_point = one_number(names.input_zero_point, at::kChar);
    return stored;
  }

  bool is_beside(const std::string& name) const { return beside_.count(name) > 0; }

  std::string told(const std::string& name) const { return what_ + ": " + one_line(name); }

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& fault) const {
    throw CheckpointError("[quantize] " + told(name) + " " + fault + quantized_advice());
  }

  at::Tensor wanted(const std::string& name) const {
    const at::Tensor* tensor = index_.find(name);
    if (tensor == nullptr) refuse(name, "is not there");
    return *tensor;
  }

  at::Tensor one_number(const std::string& name, at::ScalarType dtype) const {
    at::Tensor tensor = wanted(name);
    if (tensor.scalar_type() != dtype || tensor.dim() != 1 || tensor.size(0) != 1) {
      refuse(name, fmt::format("is {} {}, not one number of dtype {}",
                               c10::toString(tensor.scalar_type()), tensor.sizes().vec(),
                               c10::toString(dtype)));
    }
    return tensor;
  }

  const TensorIndex index_;
  const std::string what_;
  std::set<std::string> beside_;
};

QuantizedParameter checked_parameter(const StoredParameters& stored, const std::string& name,
                                     WeightReader reader) {
  const StoredParameter found = stored.find(name, reader);
  QuantizedParameter parameter;
  parameter.reader = reader;
  parameter.weight = checked_weight(found.values, found.scale, stored.told(name));
  parameter.weight.scales = parameter.weight.scales.clone();
  if (!found.input_scale.defined()) return parameter;
  InputScale input;
  input.scale = found.input_scale.item<float>();
  input.zero_point = found.input_zero_point.item<int8_t>() + kSignedZero;
  check_input_scale(input, stored.told(name));
  parameter.input = input;
  return parameter;
}

// In fp32, in the parameter's shape.
at::Tensor expanded_parameter(const QuantizedParameter& parameter) {
  at::Tensor weight = expand(parameter.weight, at::kFloat);
  return parameter.reader == WeightReader::projection ? weight.t().contiguous() : weight;
}

// Checks what quantized_parameters cannot check later: the parameter's shape, and an input scale
// before its zero point is stored as a byte.
void check_to_write(const std::string& name, const at::Tensor& tensor,
                    const QuantizedParameter& parameter) {
  const QuantizedWeight& weight = parameter.weight;
  const std::vector<int64_t> wanted = quantized_shape(tensor.sizes(), parameter.reader);
  if (weight.values.sizes() != wanted) {
    throw InputError(fmt::format(
        "[quantize] {} has shape {}, its 8-bit weight shape {}; quantise this model again", name,
        tensor.sizes().vec(), weight.values.sizes().vec()));
  }
  if (parameter.input) check_input_scale(*parameter.input, name);
}

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

// Whether two tensors of the same storage have exactly the same elements.
bool are_one(const at::Tensor& a, const at::Tensor& b) {
  return a.has_storage() && a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

}  // namespace

std::vector<int64_t> quantized_shape(at::IntArrayRef parameter, WeightReader reader) {
  std::vector<int64_t> shape = parameter.vec();
  if (reader == WeightReader::projection) std::reverse(shape.begin(), shape.end());
  return shape;
}

TensorMap with_quantized(const TensorMap& tensors, const QuantizedParameters& parameters) {
  std::set<std::string> taken;
  std::unordered_multimap<const c10::StorageImpl*, const TensorMap::Item*> replaced;
  for (const auto& item : tensors) {
    taken.insert(item.first);
    if (parameters.count(item.first) > 0) replaced.emplace(storage_of(item.second), &item);
  }
  QuantizeNote note;
  for (const auto& [name, parameter] : parameters) {
    note.readers[name] = parameter.reader;
    if (taken.count(name) == 0) {
      throw InputError("[quantize] " + name +
                       " is no tensor of the model; give the model that was quantised");
    }
  }
  for (const auto& [name, parameter] : parameters) {
    const QuantizedNames names = quantized_names(name);
    for (const std::string* beside : {&names.scale, &names.input_scale, &names.input_zero_point}) {
      if (taken.insert(*beside).second) continue;
      throw InputError("[quantize] " + *beside + ", which belongs to the 8-bit " + name +
                       ", is a tensor of its own; leave it out, or keep " + name);
    }
  }
  TensorMap all;
  for (const auto& [name, tensor] : tensors) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) {
      auto [near, end] = replaced.equal_range(storage_of(tensor));
      for (; near != end; ++near) {
        const auto& [first, numbers] = *near->second;
        if (!are_one(numbers, tensor)) continue;
        throw InputError("[quantize] " + name + " has the numbers of " + first +
                         ", which become 8-bit; quantise both or keep both");
      }
      all.set(name, tensor);
      continue;
    }
    const QuantizedParameter& parameter = found->second;
    check_to_write(name, tensor, parameter);
    const QuantizedNames names = quantized_names(name);
    all.set(name, parameter.weight.values);
    all.set(names.scale, parameter.weight.scales);
    if (!parameter.input) continue;
    all.set(names.input_scale, at::full({1}, parameter.input->scale, at::kFloat));
    all.set(names.input_zero_point,
            at::full({1}, parameter.input->zero_point - kSignedZero, at::kChar));
  }
  quantized_parameters(all, note, "the model to write");  // checks as a reader does
  return all;
}

TensorMap as_parameters(const TensorMap& tensors, const QuantizeNote& note,
                        const std::string& what) {
  if (note.empty()) return tensors;
  const StoredParameters stored(tensors, note, what);
  TensorMap all;
  for (const auto& [name, reader] : note.readers) {
    const at::Tensor values = stored.find(name, reader).values;
    all.set(name, at::empty(quantized_shape(values.sizes(), reader),
                            at::TensorOptions(at::kFloat).device(at::kMeta)));
  }
  for (const auto& [name, tensor] : tensors) {
    if (note.readers.count(name) == 0 && !stored.is_beside(name)) all.set(name, tensor);
  }
  return all;
}

QuantizedParameters quantized_parameters(const TensorMap& tensors, const QuantizeNote& note,
                                         const std::string& what) {
  const StoredParameters stored(tensors, note, what);
  QuantizedParameters parameters;
  for (const auto& [name, reader] : note.readers) {
    parameters[name] = checked_parameter(stored, name, reader);
    parameters[name].is_weight_alone = note.scheme == "weights";
  }
  return parameters;
}

TensorMap expanded(const TensorMap& tensors, const QuantizeNote& note, const std::string& what) {
  if (note.empty()) return tensors;
  const StoredParameters stored(tensors, note, what);
  // All are checked before any takes memory.
  const QuantizedParameters parameters = quantized_parameters(tensors, note, what);
  TensorMap all;
  for (const auto& [name, tensor] : tensors) {
    const auto parameter = parameters.find(name);
    if (parameter != parameters.end()) {
      all.set(name, expanded_parameter(parameter->second));
    } else if (!stored.is_beside(name)) {
      all.set(name, tensor);
    }
  }
  return all;
}

namespace {

void leave_scales_of_training(const std::filesystem::path& path, StateDict& state) {
  namespace fs = std::filesystem;
  const fs::path file = fs::is_directory(path) ? weights_of_folder(path).file : path;
  const fs::path step = file.parent_path(), config = step / "config.toml";
  if (!fs::exists(step / "state.json") || !fs::exists(config)) return;  // no step folder
  const size_t before = state.tensors.size();
  state.tensors = plain_tensors(state.tensors, run_values_of(step), read_file(config));
  const size_t left = before - state.tensors.size();
  if (left == 0) return;
  state.remarks.push_back(
      fmt::format("left out {} scales and zero points of its quantisation-aware training", left));
}

}  // namespace

NamedWeights read_expanded(const std::filesystem::path& path) {
  NamedWeights weights = read_state_dict(path);
  check_version(weights.file.metadata, path.string());
  const QuantizeNote note = quantize_note(weights.file.metadata, path.string());
  if (note.empty()) {
    leave_scales_of_training(path, weights.state);
    return weights;
  }
  weights.file.content.tensors = expanded(weights.file.content.tensors, note, path.string());
  weights.state.tensors = state_dict_of(weights.file).tensors;
  weights.state.remarks.push_back(fmt::format("expanded {} 8-bit weights to fp32 (scheme {})",
                                              note.readers.size(), note.scheme));
  return weights;
}

}  // namespace tanren
