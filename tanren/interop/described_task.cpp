#include "tanren/interop/described_task.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/check_tensors.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/model/init.h"
#include "tanren/quantize/quantized_task.h"
#include "tanren/quantize/replaced.h"
#include "tanren/train/build.h"

#include <fmt/ranges.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace tanren {

namespace {

class DescribedDataset : public Dataset {
 public:
  DescribedDataset(DataInfo info, int64_t size) : info_(std::move(info)), size_(size) {}
  int64_t size() const override { return size_; }
  DataInfo info() const override { return info_; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    throw Error(
        fmt::format("[data] the training data are not here (asked for {} samples); a whole model "
                    "only evaluates",
                    indices.size()));
  }

 private:
  DataInfo info_;
  int64_t size_;
};

// Weights in files are fp32, or fp64 from a run in fp64. Other floating tensors of a module take
// that dtype.
bool takes_dtype(const at::Tensor& own, at::ScalarType theirs) {
  const bool is_wide = theirs == at::kFloat || theirs == at::kDouble;
  return is_wide && own.is_floating_point() && own.scalar_type() != theirs;
}

// Calls check(name, second) for each further name of each parameter.
template <class Check>
void for_second_names(const torch::nn::Module& module, const Check& check) {
  std::map<const at::TensorImpl*, std::string> first;
  for (const auto& item : module.named_parameters()) {
    const auto& [one, is_new] = first.emplace(item.value().unsafeGetTensorImpl(), item.key());
    if (!is_new) check(one->second, item.key());
  }
}

[[noreturn]] void refuse_second_name(const std::string& what, const std::string& one,
                                     const std::string& other, const char* fault) {
  throw CheckpointError("[quantize] " + what + ": " + one + " and " + other +
                        " are one parameter, and " + fault + "; write the file again");
}

// If a parameter has several names, either all or none must be 8-bit, read by the same operator.
void check_second_names(const torch::nn::Module& module, const QuantizeNote& note,
                        const std::string& what) {
  for_second_names(module, [&](const std::string& one, const std::string& other) {
    const auto reader = note.readers.find(one), second = note.readers.find(other);
    const bool is_8_bit = reader != note.readers.end();
    if (is_8_bit != (second != note.readers.end())) {
      refuse_second_name(what, one, other, "one of them alone is 8-bit");
    }
    if (is_8_bit && reader->second != second->second) {
      refuse_second_name(what, one, other, "the operators that read them differ");
    }
  });
}

bool is_product(WeightReader reader) {
  return reader == WeightReader::linear || reader == WeightReader::projection;
}

bool are_equal(const QuantizedParameter& a, const QuantizedParameter& b) {
  const bool is_static = a.input.has_value();
  return at::equal(a.weight.values, b.weight.values) &&
         at::equal(a.weight.scales, b.weight.scales) && is_static == b.input.has_value() &&
         (!is_static ||
          (a.input->scale == b.input->scale && a.input->zero_point == b.input->zero_point));
}

// The 8-bit numbers of a parameter must be the same under all its names.
void check_one_parameter_once(const torch::nn::Module& module,
                              const QuantizedParameters& parameters, const std::string& what) {
  for_second_names(module, [&](const std::string& one, const std::string& other) {
    const auto first = parameters.find(one);
    if (first == parameters.end() || are_equal(first->second, parameters.at(other))) return;
    refuse_second_name(what, one, other, "their 8-bit numbers differ");
  });
}

// Checks that each 8-bit weight is named in the metadata and has the shape of its parameter.
void check_quantized(const torch::nn::Module& module, const TensorMap& tensors,
                     const QuantizeNote& note, const std::string& what) {
  const auto parameters = module.named_parameters();
  for (const auto& [name, reader] : note.readers) {
    const at::Tensor* const own = parameters.find(name);
    if (own == nullptr || !own->is_floating_point()) {
      throw CheckpointError("[quantize] " + what + " has the 8-bit weight " + one_line(name) +
                            ", and the model no such parameter; write the file again with tanren "
                            "quantize");
    }
    const std::vector<int64_t> wanted = quantized_shape(own->sizes(), reader);
    const auto has = tensors.at(name).sizes();
    if (has == wanted) continue;
    throw CheckpointError(
        fmt::format("[quantize] {}: {} is an 8-bit weight of shape {}, and the model's has shape "
                    "{}; write the file again",
                    what, name, has.vec(), wanted));
  }
  check_second_names(module, note, what);
  for (const auto& [name, own] : tensors_of(module)) {
    const at::Tensor* const theirs = tensors.find(name);
    const bool is_bytes = theirs != nullptr && theirs->scalar_type() == at::kChar;
    if (!is_bytes || !own.is_floating_point() || note.readers.count(name) > 0) continue;
    throw CheckpointError("[quantize] " + what + ": " + name + " is int8, and no reader in " +
                          kQuantizeKey +
                          " says how to read it; write the file again with tanren "
                          "quantize");
  }
}

void check_file(const torch::nn::Module& module, const SafetensorsFile& read,
                const QuantizeNote& note, const std::string& what) {
  const TensorMap tensors = as_parameters(read.tensors, note, what);
  check_quantized(module, read.tensors, note, what);
  const TensorMap own = tensors_of(module);
  TensorMap built = own;
  for (const auto& [name, tensor] : own) {
    const at::Tensor* const theirs = tensors.find(name);
    if (theirs == nullptr || !takes_dtype(tensor, theirs->scalar_type())) continue;
    built.set(name, at::empty(tensor.sizes(), theirs->options().device(at::kMeta)));
  }
  check_names_and_shapes(built, tensors, what, "export the model again");
}

// Frees the fp32 numbers, if there are any, of a parameter that has 8-bit ones.
void make_room(torch::nn::Module& module, const std::string& name) {
  at::Tensor own = module.named_parameters()[name];
  if (own.scalar_type() != at::kFloat) own.set_data(at::empty_like(own, at::kFloat));
  replace_by_nan(own);
}

// Weights of products are packed (copied), except those that are expanded for each call. All other
// 8-bit weights are copied here, because a task outlives the mapped file.
void own_bytes(QuantizedParameter& parameter) {
  const bool is_packed = is_product(parameter.reader) && !parameter.is_weight_alone;
  if (!is_packed) parameter.weight.values = parameter.weight.values.clone();
}

// Checks that the package that the user names for loading is the one that trained the file.
void check_package_of(const Metadata& metadata, const TaskFacts& facts, const std::string& what) {
  const auto note = package_note(metadata, what);
  if (!note || !facts.graph || note->checksum == facts.graph->checksum) return;
  throw ConfigError(fmt::format(
      "[model] {} was trained by another package than the one in model.path, of checksum {} and "
      "not {}; name the one that trained it",
      what, one_line(note->checksum), facts.graph->checksum));
}

}  // namespace

QuantizeNote check_described(const ModelDescription& description, const SafetensorsFile& read,
                             const std::string& what, const ModelRegistry& models) {
  QuantizeNote note = quantize_note(read.metadata, what);
  const TensorMap& tensors = read.tensors;
  const ModelOptions& options = description.config.model;
  if (!models.makes_anew(options.kind)) return note;
  // Each layer costs a few objects even if its weights take no memory.
  if (options.num_layers > static_cast<int64_t>(tensors.size())) {
    refuse_description(what, fmt::format("asks for {} layers, there are {} tensors",
                                         options.num_layers, tensors.size()));
  }
  const int64_t blocks = options.num_blocks + options.enhancer_blocks;
  if (options.kind == "pix2pixhd" && blocks > static_cast<int64_t>(tensors.size())) {
    refuse_description(
        what, fmt::format("asks for {} blocks, there are {} tensors", blocks, tensors.size()));
  }
  const DryScope without_memory;
  Task task;
  try {
    task = models.make(options, description.info);
  } catch (const c10::Error&) {
    refuse_description(what, "asks for impossible sizes");
  }
  check_file(*task.module, read, note, what);
  return note;
}

Task build_described(const ModelOptions& options, const DataInfo& info, const SafetensorsFile& read,
                     const QuantizeNote& note, const std::string& what, const ModelRegistry& models,
                     c10::ScalarType widest) {
  const MemoryScope memory(MemoryKind::weights);
  QuantizedParameters parameters = quantized_parameters(read.tensors, note, what);
  Task task;
  {
    std::optional<NoWeightsScope> no_weights;
    if (models.makes_anew(options.kind)) no_weights.emplace();
    task = models.make(options, info);
  }
  check_package_of(read.metadata, task.facts, what);
  check_file(*task.module, read, note, what);
  check_one_parameter_once(*task.module, parameters, what);
  const at::NoGradGuard no_grad;
  for (auto& [name, parameter] : parameters) make_room(*task.module, name);
  for (auto& [name, parameter] : parameters) own_bytes(parameter);
  for (const auto& [name, tensor] : tensors_of(*task.module)) {
    if (parameters.count(name) > 0) continue;
    const at::Tensor& theirs = read.tensors.at(name);
    at::Tensor own = tensor;
    // A compiled graph reads its weights in the dtype that it was exported with.
    const at::ScalarType dtype = task.facts.graph                      ? own.scalar_type()
                                 : theirs.scalar_type() == at::kDouble ? widest
                                                                       : theirs.scalar_type();
    if (is_replaced(own)) own.set_data(at::empty(own.sizes(), own.options()));
    if (takes_dtype(own, dtype)) own.set_data(at::empty_like(own, dtype));
    own.copy_(theirs);
  }
  task = quantized(std::move(task), std::move(parameters), ReplacedNumbers::freed);
  // A module of another kind had fp32 numbers, whose pages the allocator has kept.
  if (!note.empty()) trim_cpu_memory();
  return task;
}

std::unique_ptr<Dataset> described_dataset(DataInfo info, int64_t size) {
  return std::make_unique<DescribedDataset>(std::move(info), size);
}

}  // namespace tanren
