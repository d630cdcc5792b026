#include "tanren/quantize/calibration.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/operator_listener.h"
#include "tanren/quantize/evaluation_forward.h"
#include "tanren/quantize/range_tracker.h"
#include "tanren/quantize/replaced.h"
#include "tanren/quantize/weight_read.h"

#include <fmt/format.h>
#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

namespace tanren {
namespace {

// The parameter of that name. Throws an Error if there is none.
at::Tensor parameter_named(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters();
  const at::Tensor* found = parameters.find(name);
  if (found != nullptr) return *found;
  throw Error(fmt::format("[quantize] the model has no parameter {}; take names of its own", name));
}

}  // namespace

// Computes each operator that reads a tracked weight by calling that operator itself. The listener
// thus hears the operator once, and does not also hear the operators inside it.
class Calibration::Listener final : public OperatorListener {
 public:
  struct Tracked {
    std::vector<std::string> names;  // several if it is tied
    at::Tensor parameter;
    WeightReader reader;
    RangeTracker tracker;
  };
  using ByStorage = std::unordered_map<const c10::StorageImpl*, Tracked>;

  void track(const std::string& name, const at::Tensor& parameter, WeightReader reader,
             RangeKind range) {
    auto& tracked = by_storage_
                        .try_emplace(parameter.storage().unsafeGetStorageImpl(),
                                     Tracked{{}, parameter, reader, RangeTracker(range, name)})
                        .first->second;
    if (!tracked.parameter.is_same(parameter)) {
      throw Error(fmt::format("[quantize] {} and {} share their memory; give each its own", name,
                              tracked.names.front()));
    }
    tracked.names.push_back(name);
  }
  const ByStorage& tracked() const { return by_storage_; }

  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    Tracked* const of = find(weight);
    if (of == nullptr || !sees(*of, read_by_linear(input, weight, bias, of->parameter), input)) {
      return {};
    }
    return at::linear(input, weight, bias);
  }
  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar& beta, const at::Scalar& alpha) override {
    Tracked* const of = find(right);
    if (of == nullptr ||
        !sees(*of, read_by_addmm(added, left, right, beta, alpha, of->parameter), left)) {
      return {};
    }
    return at::addmm(added, left, right, beta, alpha);
  }
  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    Tracked* const of = find(right);
    if (of == nullptr || !sees(*of, read_by_matmul(left, right, of->parameter), left)) return {};
    return at::matmul(left, right);
  }
  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    Tracked* const of = find(weight);
    if (of == nullptr ||
        !sees(*of, read_by_conv2d(input, weight, bias, how, of->parameter), input)) {
      return {};
    }
    return at::conv2d(input, weight, bias, how.stride, how.padding, how.dilation, how.groups);
  }

 private:
  Tracked* find(const at::Tensor& weight) {
    if (!weight.defined() || !weight.has_storage()) return nullptr;
    const auto found = by_storage_.find(weight.storage().unsafeGetStorageImpl());
    return found != by_storage_.end() ? &found->second : nullptr;
  }
  static bool sees(Tracked& of, const WeightRead& read, const at::Tensor& input) {
    if (read.reader != of.reader) return false;
    of.tracker.add(input);
    return true;
  }

  ByStorage by_storage_;
};

WeightReaders weights_to_quantize(const std::vector<ParameterReaders>& found,
                                  const std::vector<std::string>& keep) {
  std::vector<std::string> names;
  std::set<std::string> kept;  // first names
  for (const auto& parameter : found) {
    names.push_back(parameter.name);
    if (matches_any(keep, parameter.name)) kept.insert(parameter.first);
  }
  WeightReaders readers;
  for (const auto& parameter : found) {
    if (!parameter.reader || kept.count(parameter.first) > 0) continue;
    readers.emplace(parameter.name, *parameter.reader);
  }
  check_matches("[quantize] keep", keep, names);
  return readers;
}

Calibration::Calibration(Task task, const WeightReaders& readers, RangeKind range)
    : task_(std::move(task)), listener_(std::make_shared<Listener>()) {
  for (const auto& [name, reader] : readers) {
    const at::Tensor parameter = parameter_named(*task_.module, name);
    if (reader != WeightReader::embedding) listener_->track(name, parameter, reader, range);
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
  for (const auto& [storage, tracked] : listener_->tracked()) {
    if (tracked.tracker.is_empty()) {
      throw InputError(
          fmt::format("[quantize] no layer read {} while {} samples were predicted; keep it as it "
                      "is",
                      tracked.names.front(), num_samples_));
    }
    const InputScale scale = tracked.tracker.scale();
    for (const std::string& name : tracked.names) scales.emplace(name, scale);
  }
  return scales;
}

std::vector<std::string> Calibration::with_constant_input() const {
  std::vector<std::string> names;
  for (const auto& [storage, tracked] : listener_->tracked()) {
    if (!tracked.tracker.is_constant()) continue;
    names.insert(names.end(), tracked.names.begin(), tracked.names.end());
  }
  std::sort(names.begin(), names.end());
  return names;
}

QuantizedParameters quantized_parameters(const torch::nn::Module& module,
                                         const WeightReaders& readers, QuantizeScheme scheme,
                                         const InputScales& inputs) {
  QuantizedParameters parameters;
  if (scheme == QuantizeScheme::none) return parameters;
  std::unordered_map<const at::TensorImpl*, QuantizedWeight> made;  // a tied weight once
  for (const auto& [name, reader] : readers) {
    if (scheme == QuantizeScheme::dynamic && reader == WeightReader::convolution) continue;
    const at::Tensor own = parameter_named(module, name);
    if (own.scalar_type() != at::kFloat && own.scalar_type() != at::kBFloat16) {
      throw InputError(fmt::format("[quantize] {} has dtype {}; give fp32 or bf16 weights", name,
                                   c10::toString(own.scalar_type())));
    }
    refuse_replaced(own, name);
    QuantizedWeight& weight = made[own.unsafeGetTensorImpl()];
    if (!weight.values.defined()) {
      weight = quantize_weight(reader == WeightReader::projection ? own.t() : own, name);
    }
    QuantizedParameter parameter{.weight = weight, .reader = reader};
    parameter.is_weight_alone = scheme == QuantizeScheme::weights;
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
