#include "tanren/quantize/calibration.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/operator_listener.h"
#include "tanren/quantize/evaluation_forward.h"
#include "tanren/quantize/range_tracker.h"

#include <fmt/format.h>
#include <ATen/ATen.h>

#include <unordered_map>
#include <utility>

namespace tanren {
namespace {

// The parameter of that name. Throws an Error if there is none.
at::Tensor weight_named(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  const at::Tensor* found = parameters.find(name);
  if (found == nullptr) {
    throw Error(fmt::format("[quantize] the model has no parameter {}; take names of its own",
                            name));
  }
  return found->detach();
}

bool is_laid_out_as(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return tensor.sizes() == sizes && tensor.strides() == strides;
}

}  // namespace

// Answers the operators of the tracked weights itself, by themselves: so each is heard once, and
// not again as those that it is made of.
class Calibration::Listener final : public OperatorListener {
 public:
  struct Tracked {
    std::string name;
    at::Tensor weight;
    RangeTracker tracker;
  };

  void track(const std::string& name, const at::Tensor& weight, RangeKind range) {
    tracked_.emplace(weight.const_data_ptr(), Tracked{name, weight, RangeTracker(range, name)});
  }
  const auto& tracked() const { return tracked_; }

  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    if (!sees(input, of_weight(weight))) return {};
    return at::linear(input, weight, bias);
  }
  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar& beta, const at::Scalar& alpha) override {
    if (!sees(left, of_transposed(right))) return {};
    return at::addmm(added, left, right, beta, alpha);
  }
  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    if (!sees(left, of_transposed(right))) return {};
    return at::matmul(left, right);
  }
  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    if (!sees(input, of_weight(weight))) return {};
    return at::conv2d(input, weight, bias, how.stride, how.padding, how.dilation, how.groups);
  }

 private:
  Tracked* at_address(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return nullptr;
    const auto found = tracked_.find(tensor.const_data_ptr());
    const bool is_it =
        found != tracked_.end() && found->second.weight.scalar_type() == tensor.scalar_type();
    return is_it ? &found->second : nullptr;
  }
  Tracked* of_weight(const at::Tensor& tensor) {
    Tracked* const found = at_address(tensor);
    if (found == nullptr) return nullptr;
    const at::Tensor& weight = found->weight;
    return is_laid_out_as(tensor, weight.sizes(), weight.strides()) ? found : nullptr;
  }
  // `tensor` is weight.t().
  Tracked* of_transposed(const at::Tensor& tensor) {
    Tracked* const found = at_address(tensor);
    if (found == nullptr || found->weight.dim() != 2) return nullptr;
    const at::Tensor view = found->weight.t();
    return is_laid_out_as(tensor, view.sizes(), view.strides()) ? found : nullptr;
  }
  static bool sees(const at::Tensor& input, Tracked* weight) {
    if (weight == nullptr) return false;
    weight->tracker.add(input);
    return true;
  }

  std::unordered_map<const void*, Tracked> tracked_;  // by the address of the weight's elements
};

WeightReaders without_kept(WeightReaders readers, const std::vector<std::string>& keep,
                           const torch::nn::Module& module) {
  check_matches("[quantize] keep", keep, module.named_parameters().keys());
  std::erase_if(readers, [&](const auto& reader) { return matches_any(keep, reader.first); });
  return readers;
}

Calibration::Calibration(Task task, const WeightReaders& readers, RangeKind range)
    : task_(std::move(task)), listener_(std::make_shared<Listener>()) {
  for (const auto& [name, reader] : readers) {
    const at::Tensor weight = weight_named(*task_.module, name);
    if (reader != WeightReader::embedding) listener_->track(name, weight, range);
  }
}

Calibration::~Calibration() = default;

void Calibration::predict(const Batch& batch) {
  const OperatorListenerScope scope(listener_);
  evaluation_forward(task_, batch);
  num_samples_ += batch.size();
}

InputScales Calibration::inputs() const {
  if (num_samples_ < kFewestSamples) {
    throw InputError(fmt::format("[quantize] {} samples to calibrate with; give at least {}",
                                 num_samples_, kFewestSamples));
  }
  InputScales scales;
  for (const auto& [address, tracked] : listener_->tracked()) {
    if (tracked.tracker.is_empty()) {
      throw InputError(
          fmt::format("[quantize] no layer read {} while {} samples were predicted; keep it as it "
                      "is",
                      tracked.name, num_samples_));
    }
    scales.emplace(tracked.name, tracked.tracker.scale());
  }
  return scales;
}

QuantizedParameters quantized_parameters(const torch::nn::Module& module,
                                         const WeightReaders& readers, QuantizeScheme scheme,
                                         const InputScales& inputs) {
  QuantizedParameters parameters;
  for (const auto& [name, reader] : readers) {
    if (scheme == QuantizeScheme::dynamic && reader == WeightReader::convolution) continue;
    const at::Tensor weight = weight_named(module, name);
    if (weight.scalar_type() != at::kFloat) {
      throw InputError(fmt::format("[quantize] {} has dtype {}; give fp32 weights", name,
                                   c10::toString(weight.scalar_type())));
    }
    QuantizedParameter parameter{.weight = quantize_weight(weight, name), .reader = reader};
    if (scheme == QuantizeScheme::calibrated && reader != WeightReader::embedding) {
      const auto input = inputs.find(name);
      if (input == inputs.end()) {
        throw Error(fmt::format("[quantize] {} has no scale of its input; calibrate it", name));
      }
      check_input_scale(input->second, name);
      parameter.input = input->second;
    }
    parameters.emplace(name, std::move(parameter));
  }
  return parameters;
}

}  // namespace tanren
