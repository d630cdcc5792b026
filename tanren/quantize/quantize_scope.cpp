#include "tanren/quantize/quantize_scope.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/memory_tag.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/quantized_convolution.h"
#include "tanren/ops/quantized_embedding.h"
#include "tanren/quantize/weight_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

bool is_product(WeightReader reader) {
  return reader == WeightReader::linear || reader == WeightReader::projection;
}

void check_shape(const QuantizedParameter& of, const at::Tensor& parameter,
                 const std::string& name) {
  const size_t dims = of.reader == WeightReader::convolution ? 4 : 2;
  std::vector<int64_t> wanted = parameter.sizes().vec();
  if (of.reader == WeightReader::projection) std::reverse(wanted.begin(), wanted.end());
  if (wanted.size() == dims && of.weight.values.sizes() == wanted) return;
  throw InputError(
      fmt::format("[quantize] {} is a parameter of shape {}, its 8-bit weight has shape {} for an "
                  "operator with {} dims; quantise this model again",
                  name, parameter.sizes().vec(), of.weight.values.sizes().vec(), dims));
}

void check_input(const QuantizedParameter& of, const std::string& name) {
  if (!of.input) return;
  check_input_scale(*of.input, name);
  const auto sizes = of.weight.values.sizes();
  if (of.reader == WeightReader::embedding) {
    throw InputError(
        fmt::format("[quantize] {} is a table, whose input is no number to scale; leave out its "
                    "input scale",
                    name));
  }
  if (of.reader == WeightReader::convolution && (sizes[2] != sizes[3] || of.weight.groups() != 1)) {
    throw InputError(
        fmt::format("[quantize] {} is a convolution's weight of shape {} with {} scales a channel; "
                    "keep it as it is, or give it a square kernel and one scale",
                    name, sizes.vec(), of.weight.groups()));
  }
}

void check_parameter(const QuantizedParameter& of, const at::Tensor* parameter,
                     const std::string& name, ReplacedNumbers numbers) {
  if (parameter == nullptr) {
    throw InputError(fmt::format(
        "[quantize] {} is no parameter of the model; give the model that was quantised", name));
  }
  if (numbers == ReplacedNumbers::there) refuse_replaced(*parameter, name);
  const auto dtype = parameter->scalar_type();
  if (!parameter->device().is_cpu() || (dtype != at::kFloat && dtype != at::kBFloat16)) {
    throw InputError(fmt::format(
        "[quantize] {} is {} on {}; 8-bit weights stand in for fp32 and bf16 on the CPU", name,
        c10::toString(dtype), parameter->device().str()));
  }
  check_shape(of, *parameter, name);
  check_input(of, name);
}

// The dtype of the operator's result.
at::ScalarType compute_dtype(const at::Tensor& weight) {
  const bool casts = at::autocast::is_autocast_enabled(at::kCPU) &&
                     !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutocastCPU);
  return casts ? at::autocast::get_autocast_dtype(at::kCPU) : weight.scalar_type();
}

// compute(x, dtype) in `dtype`. fp16 goes through fp32, because the 8-bit operators lack it.
template <class F>
at::Tensor computed_in(at::ScalarType dtype, const at::Tensor& x, const F& compute) {
  const at::Tensor given = x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x;
  if (dtype == at::kHalf) return compute(given, at::kFloat).to(at::kHalf);
  return compute(given, dtype);
}

at::Tensor bias_of(const OperatorListener::Bias& bias) { return bias ? *bias : at::Tensor(); }

// The rows times the expanded weight, some channels at a time: the bytes are read once, and the
// expanded channels stay in the cache.
at::Tensor product_of_expanded(const at::Tensor& x, const QuantizedWeight& weight,
                               const at::Tensor& bias, at::ScalarType dtype) {
  constexpr int64_t kExpandedElements = 128 << 10;
  const at::NoGradGuard no_grad;
  const int64_t most = std::max<int64_t>(kExpandedElements / weight.row(), 1);
  const at::Tensor rows = x.to(dtype).reshape({-1, weight.row()});
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.out();
  at::Tensor y = at::empty({rows.size(0), weight.out()}, rows.options());
  for (int64_t first = 0; first < weight.out(); first += most) {
    const int64_t count = std::min(most, weight.out() - first);
    const QuantizedWeight some{weight.values.narrow(0, first, count),
                               weight.scales.narrow(0, first, count),
                               weight.sums.narrow(0, first, count)};
    at::Tensor part = y.narrow(1, first, count);
    const at::Tensor turned = expand(some, dtype).t();
    if (bias.defined()) {
      at::addmm_out(part, bias.narrow(0, first, count).to(dtype), rows, turned);
    } else {
      at::mm_out(part, rows, turned);
    }
  }
  return y.view(sizes);
}

[[noreturn]] void throw_unanswered(const std::string& name, const std::string& how) {
  throw Error(fmt::format(
      "[quantize] {} is read by {}, which no 8-bit weight answers; keep it (quantize.keep)", name,
      how));
}

// Whether conv2d would give channels-last.
bool gives_channels_last(const at::Tensor& x, const at::Tensor& weight) {
  return x.suggest_memory_format() == at::MemoryFormat::ChannelsLast ||
         (weight.size(1) > 1 && weight.size(2) > 1 && weight.stride(1) == 1);
}

}  // namespace

struct QuantizedLayers::Layer {
  Layer(std::string given_name, const at::Tensor& given_parameter, QuantizedParameter given)
      : name(std::move(given_name)),
        parameter(given_parameter),
        reader(given.reader),
        input(given.input),
        is_expanded(is_product(reader) && given.is_weight_alone) {
    const MemoryScope memory(MemoryKind::weights);
    if (is_product(reader) && !is_expanded) {
      packed = pack_weight(given.weight);
    } else {
      weight = std::move(given.weight);
    }
    replace_by_nan(parameter);
  }

  // The convolution with this stride and padding, which the first call fixes; null for any others.
  // A dry run of a real model prepares a convolution without numbers: it is stored only in
  // `of_shapes`.
  const QuantizedConvolution* convolution(const at::Tensor& x, int64_t stride, int64_t padding,
                                          std::optional<QuantizedConvolution>& of_shapes) {
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    if (!prepared && is_dry(x) && !is_dry(parameter)) {
      return &of_shapes.emplace(
          prepare_convolution(weight, *input, stride, padding, ConvolutionWay::patches));
    }
    if (!prepared) {
      const at::NoGradGuard no_grad;
      const MemoryScope memory(MemoryKind::weights);
      prepared = prepare_convolution(weight, *input, stride, padding);
      weight = {};
    }
    return prepared->stride == stride && prepared->padding == padding ? &*prepared : nullptr;
  }

  const std::string name;
  const at::Tensor parameter;  // replaced
  const WeightReader reader;
  const std::optional<InputScale> input;
  const bool is_expanded;  // for each call, by a linear or projection
  PackedWeight packed;     // of a linear or projection whose input becomes bytes
  QuantizedWeight weight;  // of others; of a convolution with an input scale until it is prepared
  std::mutex one_at_a_time;
  std::optional<QuantizedConvolution> prepared;
  std::atomic<int64_t> answers = 0;
};

// Made for each scope, because moving the module gives its parameters new storages.
class QuantizedLayers::Answering final : public OperatorListener {
 public:
  explicit Answering(std::shared_ptr<const QuantizedLayers> layers) : layers_(std::move(layers)) {
    by_storage_.reserve(layers_->layers_.size());
    for (const auto& layer : layers_->layers_) {
      by_storage_.emplace(layer->parameter.storage().unsafeGetStorageImpl(), layer.get());
    }
    const auto listener = std::dynamic_pointer_cast<Answering>(OperatorListenerScope::current());
    if (listener == nullptr) return;
    outer_ = listener->layers_ == layers_ ? listener->outer_ : listener;
    refuse_other_weights();
  }

  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    refuse_other_than_weight(input, "linear as its input");
    if (bias) refuse_other_than_weight(*bias, "an operator that adds it");
    Layer* const layer = find(weight);
    if (layer == nullptr) return outer_ ? outer_->linear(input, weight, bias) : Answer();
    return product(*layer, read_by_linear(input, weight, bias, layer->parameter), input,
                   bias_of(bias));
  }

  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar& beta, const at::Scalar& alpha) override {
    refuse_other_than_weight(left, "addmm as its left factor");
    refuse_other_than_weight(added, "an operator that adds it");
    Layer* const layer = find(right);
    if (layer == nullptr) return outer_ ? outer_->addmm(added, left, right, beta, alpha) : Answer();
    return product(*layer, read_by_addmm(added, left, right, beta, alpha, layer->parameter), left,
                   added);
  }

  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    refuse_other_than_weight(left, "matmul as its left factor");
    Layer* const layer = find(right);
    if (layer == nullptr) return outer_ ? outer_->matmul(left, right) : Answer();
    return product(*layer, read_by_matmul(left, right, layer->parameter), left, {});
  }

  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    refuse_other_than_weight(input, "conv2d as its input");
    if (bias) refuse_other_than_weight(*bias, "an operator that adds it");
    Layer* const layer = find(weight);
    if (layer == nullptr) return outer_ ? outer_->conv2d(input, weight, bias, how) : Answer();
    const auto read = read_by_conv2d(input, weight, bias, how, layer->parameter);
    check_read(*layer, read, WeightReader::convolution);
    const at::ScalarType dtype = compute_dtype(weight);
    if (!layer->input) {
      ++layer->answers;
      const at::Tensor expanded = expand(layer->weight, dtype);
      const auto layout = gives_channels_last(input, weight) ? at::MemoryFormat::ChannelsLast
                                                             : at::MemoryFormat::Contiguous;
      return at::conv2d(input, expanded.contiguous(layout), bias, how.stride, how.padding);
    }
    std::optional<QuantizedConvolution> of_shapes;
    const QuantizedConvolution* const of =
        layer->convolution(input, how.stride.front(), how.padding.front(), of_shapes);
    if (of == nullptr) throw_unanswered(layer->name, "convolutions with two strides or paddings");
    ++layer->answers;
    const at::Tensor y = computed_in(dtype, input, [&](const at::Tensor& x, at::ScalarType to) {
      return quantized_convolution(x, *of, bias_of(bias), to);
    });
    return gives_channels_last(input, weight) ? y : y.contiguous();
  }

  Answer embedding(const at::Tensor& weight, const at::Tensor& indices) override {
    Layer* const layer = find(weight);
    if (layer == nullptr) return outer_ ? outer_->embedding(weight, indices) : Answer();
    const bool has_rows =
        layer->reader == WeightReader::embedding || layer->reader == WeightReader::linear;
    const WeightRead read = read_by_embedding(weight, layer->parameter);
    if (!read.reader || !has_rows) {
      throw_unanswered(layer->name, read.reader ? "embedding" : read.why);
    }
    const auto dtype = weight.scalar_type();  // autocast leaves embeddings alone
    ++layer->answers;
    if (layer->weight.values.defined()) return quantized_embedding(layer->weight, indices, dtype);
    return quantized_embedding(layer->packed, indices, dtype);
  }

 private:
  Layer* find(const at::Tensor& weight) const {
    if (!weight.defined() || !weight.has_storage()) return nullptr;
    const auto found = by_storage_.find(weight.storage().unsafeGetStorageImpl());
    return found != by_storage_.end() ? found->second : nullptr;
  }

  // Throws if an outer scope has an 8-bit weight of the same parameter: it would be unclear which
  // one to use.
  void refuse_other_weights() const {
    for (const Answering* other = outer_.get(); other != nullptr; other = other->outer_.get()) {
      for (const auto& [storage, layer] : by_storage_) {
        if (other->by_storage_.count(storage) == 0) continue;
        throw Error(fmt::format(
            "[quantize] {} has an 8-bit weight already; quantise the model that was trained",
            layer->name));
      }
    }
  }

  void refuse_other_than_weight(const at::Tensor& argument, const char* how) const {
    if (const Layer* const layer = find(argument)) throw_unanswered(layer->name, how);
  }

  static void check_read(const Layer& layer, const WeightRead& read, WeightReader as) {
    if (!read.reader) throw_unanswered(layer.name, read.why);
    if (*read.reader != layer.reader || layer.reader != as) {
      throw_unanswered(layer.name, std::string(name(*read.reader)));
    }
  }

  static Answer product(Layer& layer, const WeightRead& read, const at::Tensor& rows,
                        const at::Tensor& bias) {
    check_read(layer, read,
               layer.reader == WeightReader::projection ? layer.reader : WeightReader::linear);
    ++layer.answers;
    return computed_in(compute_dtype(layer.parameter), rows,
                       [&](const at::Tensor& x, at::ScalarType dtype) {
                         if (layer.is_expanded) {
                           return product_of_expanded(x, layer.weight, bias, dtype);
                         }
                         return quantized_linear(x, layer.packed, bias, layer.input, dtype);
                       });
  }

  std::shared_ptr<const QuantizedLayers> layers_;
  std::shared_ptr<Answering> outer_;  // for weights that `layers_` do not have
  std::unordered_map<const c10::StorageImpl*, Layer*> by_storage_;
};

QuantizedLayers::QuantizedLayers(const torch::nn::Module& module, QuantizedParameters parameters,
                                 ReplacedNumbers numbers) {
  const auto named = module.named_parameters();
  std::map<const at::TensorImpl*, std::pair<std::string, WeightReader>> read_by;
  for (const auto& [name, of] : parameters) {
    check_parameter(of, named.find(name), name, numbers);
    const auto first =
        read_by.try_emplace(named[name].unsafeGetTensorImpl(), name, of.reader).first->second;
    if (first.second == of.reader) continue;
    throw InputError(fmt::format(
        "[quantize] {} and {} are one parameter, read by {} and {}; give both the same reader",
        first.first, name, tanren::name(first.second), tanren::name(of.reader)));
  }
  std::set<const at::TensorImpl*> seen;
  const size_t num_weights = parameters.size();
  while (!parameters.empty()) {  // frees each weight's values once they are packed
    auto item = parameters.extract(parameters.begin());
    const at::Tensor& parameter = named[item.key()];
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) continue;  // its second name
    try {
      layers_.push_back(std::make_unique<Layer>(item.key(), parameter, std::move(item.mapped())));
    } catch (const std::exception& error) {
      if (layers_.empty() || numbers == ReplacedNumbers::freed) throw;
      throw RunError(fmt::format(
          "[quantize] {} could not become 8-bit after {} of {} weights, whose numbers are gone "
          "({}); load the model again",
          item.key(), layers_.size(), num_weights, line_of(error)));
    }
  }
}

QuantizedLayers::~QuantizedLayers() = default;

std::map<std::string, int64_t> QuantizedLayers::answers() const {
  std::map<std::string, int64_t> counts;
  for (const auto& layer : layers_) counts[layer->name] = layer->answers;
  return counts;
}

QuantizeScope::QuantizeScope(std::shared_ptr<const QuantizedLayers> layers)
    : heard_(std::make_shared<QuantizedLayers::Answering>(std::move(layers))) {}

}  // namespace tanren
