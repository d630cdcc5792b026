#include "tanren/quantize/fake_scope.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/dry/dry_batch.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/convolution.h"
#include "tanren/ops/fake_quantize.h"
#include "tanren/quantize/evaluation_forward.h"
#include "tanren/quantize/quantized_names.h"
#include "tanren/quantize/weight_read.h"

#include <fmt/format.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tanren {
namespace {

// Bytes. Smaller tensors hold values in a dry run, because models compute constants with tensors.
constexpr int64_t kRealInFakes = 64 << 10;

// Identifies a parameter, also by a view of it in an operator. Several parameters may lie in one
// storage.
struct WeightPlace {
  const c10::StorageImpl* storage;
  int64_t offset;
  bool operator==(const WeightPlace&) const = default;
};
struct WeightPlaceHash {
  size_t operator()(const WeightPlace& place) const {
    return std::hash<const void*>()(place.storage) ^ std::hash<int64_t>()(place.offset);
  }
};

WeightPlace place_of(const at::Tensor& weight) {
  return {weight.storage().unsafeGetStorageImpl(), weight.storage_offset()};
}

template <class Value>
using ByPlace = std::unordered_map<WeightPlace, Value, WeightPlaceHash>;

template <class Value>
Value* find_by_place(ByPlace<Value>& all, const at::Tensor& weight) {
  if (!weight.defined() || !weight.has_storage()) return nullptr;
  const auto found = all.find(place_of(weight));
  return found == all.end() ? nullptr : &found->second;
}

// Counts the elements that linear layers and convolutions read. Computes a product by calling its
// operator, so that it is heard once, and the operators inside it are not heard.
class InputCounts final : public OperatorListener {
 public:
  InputCounts(const torch::nn::Module& module, const WeightReaders& readers) {
    const auto parameters = module.named_parameters();
    for (const auto& [name, reader] : readers) {
      const at::Tensor& parameter = parameters[name];
      auto& counted =
          by_place_.try_emplace(place_of(parameter), Counted{parameter, reader}).first->second;
      counted.names.push_back(name);
    }
  }

  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    Counted* const of = find_by_place(by_place_, weight);
    if (of == nullptr || !counts(*of, read_by_linear(input, weight, bias, of->parameter), input)) {
      return {};
    }
    return at::linear(input, weight, bias);
  }
  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar& beta, const at::Scalar& alpha) override {
    Counted* const of = find_by_place(by_place_, right);
    if (of == nullptr ||
        !counts(*of, read_by_addmm(added, left, right, beta, alpha, of->parameter), left)) {
      return {};
    }
    return at::addmm(added, left, right, beta, alpha);
  }
  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    Counted* const of = find_by_place(by_place_, right);
    if (of == nullptr || !counts(*of, read_by_matmul(left, right, of->parameter), left)) return {};
    return at::matmul(left, right);
  }
  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    Counted* const of = find_by_place(by_place_, weight);
    if (of != nullptr) {
      (void)counts(*of, read_by_conv2d(input, weight, bias, how, of->parameter), input);
    }
    return {};
  }

  // Raises most[name] to the elements per sample that were counted since the last call.
  void take(int64_t samples, std::map<std::string, int64_t>& most) {
    for (auto& [place, counted] : by_place_) {
      for (const std::string& name : counted.names) {
        int64_t& own = most[name];
        own = std::max(own, counted.elements / std::max<int64_t>(samples, 1));
      }
      counted.elements = 0;
    }
  }

 private:
  struct Counted {
    at::Tensor parameter;
    WeightReader reader;
    std::vector<std::string> names = {};
    int64_t elements = 0;
  };

  static bool counts(Counted& of, const WeightRead& read, const at::Tensor& input) {
    if (read.reader != of.reader) return false;
    of.elements += input.numel();
    return true;
  }

  ByPlace<Counted> by_place_;
};

}  // namespace

struct FakeLayers::Layer {
  std::string name;
  at::Tensor parameter;
  WeightReader reader = WeightReader::linear;
  int64_t input_elements = 1;
  at::Tensor scale, zero_point;  // undefined: the input gets none
  // The buffer's version and its value at that version (-1: unknown), so that a forward need not
  // read the device.
  mutable std::atomic<int64_t> known = -1;

  int64_t zero() const {
    if (is_dry(zero_point)) return 128;
    const auto version = static_cast<int64_t>(zero_point._version());
    const int64_t now = known.load(std::memory_order_relaxed);
    if (now >= 0 && now >> 8 == version) return now & 255;
    const int64_t value = zero_point.device().is_cpu()
                              ? *zero_point.const_data_ptr<int64_t>()
                              : static_cast<int64_t>(read_to_host(zero_point).front());
    known.store(version << 8 | std::clamp<int64_t>(value, 0, 255), std::memory_order_relaxed);
    return std::clamp<int64_t>(value, 0, 255);
  }
};

// Made for each scope, because a parameter has another memory after it was moved.
class FakeLayers::Answering final : public OperatorListener {
 public:
  explicit Answering(std::shared_ptr<const FakeLayers> layers) : layers_(std::move(layers)) {
    by_place_.reserve(layers_->layers_.size());
    for (const auto& layer : layers_->layers_) {
      by_place_.emplace(place_of(layer->parameter), layer.get());
    }
  }

  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    refuse_other_than_weight(input, "linear as its input");
    const Layer* const of = find(weight);
    if (of == nullptr) return {};
    check_read(*of, read_by_linear(input, weight, bias, of->parameter));
    return at::linear(rounded(*of, input), rounded_weight(*of, weight), bias);
  }
  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar& beta, const at::Scalar& alpha) override {
    refuse_other_than_weight(left, "addmm as its left factor");
    const Layer* const of = find(right);
    if (of == nullptr) return {};
    check_read(*of, read_by_addmm(added, left, right, beta, alpha, of->parameter));
    return at::addmm(added, rounded(*of, left), rounded_weight(*of, right.t()).t());
  }
  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    refuse_other_than_weight(left, "matmul as its left factor");
    const Layer* const of = find(right);
    if (of == nullptr) return {};
    check_read(*of, read_by_matmul(left, right, of->parameter));
    return at::matmul(rounded(*of, left), rounded_weight(*of, right.t()).t());
  }
  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    const Layer* const of = find(weight);
    if (of == nullptr) return {};
    check_read(*of, read_by_conv2d(input, weight, bias, how, of->parameter));
    return convolution(rounded(*of, input), rounded_weight(*of, weight),
                       bias.value_or(at::Tensor()), how.stride.front(), how.padding.front());
  }
  // Rounds only the requested rows: each has its own scale.
  Answer trained_embedding(const at::Tensor& weight, const at::Tensor& indices,
                           const Embedding& how) override {
    const Layer* const of = find(weight);
    if (of == nullptr) return {};
    const WeightRead read = read_by_embedding(weight, of->parameter);
    if (!read.reader || of->reader != WeightReader::linear) check_read(*of, read);
    const at::Tensor rows =
        at::embedding(weight, indices, how.padding_index, how.by_frequency, how.sparse);
    return rounded_rows(rows);
  }

 private:
  const Layer* find(const at::Tensor& weight) const {
    if (!weight.defined() || !weight.has_storage()) return nullptr;
    const auto found = by_place_.find(place_of(weight));
    return found == by_place_.end() ? nullptr : found->second;
  }

  // Otherwise the weight would be read unrounded, and the 8-bit model would compute something else.
  [[noreturn]] static void throw_unanswered(const Layer& of, std::string_view how) {
    throw Error(fmt::format(
        "[quantize] {} is read by {}, which no rounded weight answers, in a training that rounds "
        "it for {}; keep it (quantize.keep)",
        of.name, how, tanren::name(of.reader)));
  }
  static void check_read(const Layer& of, const WeightRead& read) {
    if (!read.reader) throw_unanswered(of, read.why);
    if (*read.reader != of.reader) throw_unanswered(of, tanren::name(*read.reader));
  }
  void refuse_other_than_weight(const at::Tensor& argument, const char* how) const {
    if (const Layer* const of = find(argument)) throw_unanswered(*of, how);
  }

  // `weight` [out, …]. Keeps the last result for the next call, because a loss reads its head in
  // parts.
  at::Tensor rounded_weight(const Layer& of, const at::Tensor& weight) {
    const bool differentiates = at::GradMode::is_enabled() && weight.requires_grad();
    const auto version = static_cast<int64_t>(of.parameter._version());
    // The end of a recomputed block may have detached the kept result from its graph.
    const bool is_kept = last_.of == &of && last_.version == version &&
                         last_.rounded.requires_grad() == differentiates;
    if (!is_kept) last_ = {&of, version, fake_quantize_weight(weight)};
    return last_.rounded;
  }
  // Rounds each row as quantized_linear does: symmetrically, with a scale computed as for a
  // weight's channel.
  static at::Tensor rounded_rows(const at::Tensor& x) {
    if (x.numel() == 0) return x;
    return fake_quantize_weight(x.reshape({-1, x.size(-1)})).view(x.sizes());
  }

  at::Tensor rounded(const Layer& of, const at::Tensor& input) const {
    if (input.numel() == 0) return input;
    if (layers_->scheme_ == QuantizeScheme::dynamic) return rounded_rows(input);
    if (!of.scale.defined()) return input;
    return fake_quantize(input, above_zero(of.scale),
                         {.low = 0, .high = 255, .zero_point = of.zero()}, of.input_elements);
  }

  struct Last {
    const Layer* of = nullptr;
    int64_t version = 0;
    at::Tensor rounded = {};
  };

  std::shared_ptr<const FakeLayers> layers_;
  ByPlace<const Layer*> by_place_;
  Last last_;
};

FakeLayers::FakeLayers(const torch::nn::Module& module, const FakeQuantization& how)
    : scheme_(how.scheme), norms_(batch_norms(module)) {
  const auto parameters = module.named_parameters();
  const auto buffers = module.named_buffers();
  for (const FakeLayer& of : how.layers) {
    const at::Tensor* const weight = parameters.find(of.name);
    if (weight == nullptr || of.first != of.name) continue;
    auto layer = std::make_unique<Layer>();
    layer->name = of.name;
    layer->parameter = *weight;
    layer->reader = of.reader;
    layer->input_elements = of.input_elements;
    if (how.scheme == QuantizeScheme::calibrated && of.reader != WeightReader::embedding) {
      const QuantizedNames names = quantized_names(of.name);
      layer->scale = parameters[names.input_scale];
      layer->zero_point = buffers[names.input_zero_point];
    }
    layers_.push_back(std::move(layer));
  }
}

FakeLayers::~FakeLayers() = default;

void FakeLayers::make_norms_still() const {
  for (const auto& norm : norms_) {
    if (norm->is_training()) norm->eval();
  }
}

FakeScope::FakeScope(const std::shared_ptr<const FakeLayers>& layers)
    : heard_(std::make_shared<FakeLayers::Answering>(layers)) {
  layers->make_norms_still();
}

std::vector<std::shared_ptr<torch::nn::Module>> batch_norms(const torch::nn::Module& module) {
  std::vector<std::shared_ptr<torch::nn::Module>> norms;
  for (const auto& child : module.children()) {
    if (child->name().find("BatchNorm") != std::string::npos) norms.push_back(child);
    const auto inside = batch_norms(*child);
    norms.insert(norms.end(), inside.begin(), inside.end());
  }
  return norms;
}

std::map<std::string, int64_t> input_elements(const Task& task, const WeightReaders& readers,
                                              const Batch& batch) {
  const auto counts = std::make_shared<InputCounts>(*task.module, readers);
  std::map<std::string, int64_t> most;
  const DryScope dry(nullptr, kRealInFakes);
  const OperatorListenerScope heard(counts);
  for (const PhaseSpec& phase : task.phases) {
    (void)training_forward(task, phase, without_memory(batch));
    counts->take(batch.size(), most);
  }
  return most;
}

at::Tensor above_zero(const at::Tensor& scale) {
  return scale.abs().clamp_min(std::numeric_limits<float>::min());
}

}  // namespace tanren
