#include "tanren/optimizer/packed_adamw.h"

#include "tanren/base/names.h"
#include "tanren/config/kinds.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/eight_bit.h"
#include "tanren/ops/memory_order.h"
#include "tanren/optimizer/adamw.h"
#include "tanren/optimizer/packed_kernels.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>

#include <cmath>
#include <map>
#include <set>

namespace tanren {
namespace {

constexpr int kPacked = 1;

// The moments of one parameter, with its shape and strides.
struct Moments {
  at::Tensor first, second;              // codes, or bf16
  at::Tensor first_scale, second_scale;  // of codes, one per block of memory
};

class PackedAdamW final : public TensorOptimizer {
 public:
  PackedAdamW(const OptimizerOptions& options, std::vector<Group> packed, std::vector<Group> rest,
              Way way, std::vector<int64_t> begins)
      : options_(options),
        way_(way),
        groups_(std::move(packed)),
        rest_(make_adamw(options, std::move(rest))),
        begins_(std::move(begins)) {
    for (Group& group : groups_) {
      auto& moments = moments_.emplace_back();
      for (const auto& parameter : group.all.parameters) moments.push_back(make(parameter));
      group.all_steps = at::zeros({static_cast<int64_t>(group.names.size())}, at::kFloat);
    }
  }

  void step(const StepInput& input) override {
    const at::NoGradGuard no_grad;
    rest_->step(input);
    if (groups_.empty() || is_skipped(input)) return;
    for (size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      if (group.refresh(input) == 0) continue;
      auto* steps = group.all_steps.mutable_data_ptr<float>();
      for (size_t i = 0; i < group.names.size(); ++i) {
        if (group.present[i] == 0) continue;
        steps[i] += 1;
        update(group.all.parameters[i], group.all.gradients[i], moments_[g][i],
               numbers(group, input.learning_rate, steps[i]), static_cast<uint32_t>(steps[i]),
               static_cast<uint32_t>(begins_[group.index[i]]));
      }
    }
  }

  // Blocks follow the parameter's memory, so its memory order is saved with them.
  State state() const override {
    State state = TensorOptimizer::state();
    for_each([&](const std::string& name, const at::Tensor& parameter, const Moments& moments) {
      const std::string order = memory_order(parameter.sizes(), parameter.strides());
      if (moments.first_scale.defined() && !order.empty()) state.values[name + ".order"] = order;
    });
    return state;
  }

  void load(const State& state) override { load_tensors(named(), as_kept(state)); }

  NamedTensors named() const override {
    NamedTensors tensors = rest_->named();
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t i = 0; i < groups_[g].names.size(); ++i) {
        const std::string& name = groups_[g].names[i];
        const Moments& moments = moments_[g][i];
        const std::string codes = moments.first_scale.defined() ? "_codes" : "";
        tensors.emplace_back(name + ".exp_avg" + codes, moments.first);
        tensors.emplace_back(name + ".exp_avg_sq" + codes, moments.second);
        if (!codes.empty()) {
          tensors.emplace_back(name + ".exp_avg_scales", moments.first_scale);
          tensors.emplace_back(name + ".exp_avg_sq_scales", moments.second_scale);
        }
        tensors.emplace_back(name + ".step", groups_[g].all_steps[static_cast<int64_t>(i)]);
      }
    }
    return tensors;
  }

 private:
  template <class F>
  void for_each(F&& work) const {
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (size_t i = 0; i < groups_[g].names.size(); ++i) {
        work(groups_[g].names[i], groups_[g].all.parameters[i], moments_[g][i]);
      }
    }
  }

  Moments make(const at::Tensor& parameter) const {
    const at::Tensor like = parameter.detach();
    if (options_.state == "bf16") {
      return {at::zeros_like(like, at::kBFloat16), at::zeros_like(like, at::kBFloat16), {}, {}};
    }
    const int64_t blocks = (like.numel() + kPackedBlock - 1) / kPackedBlock;
    const auto codes = like.options().dtype(at::kByte);
    return {at::full_like(like, eight_bit_book(true).code(0), codes),
            at::full_like(like, eight_bit_book(false).code(0), codes),
            at::zeros({blocks}, like.options()), at::zeros({blocks}, like.options())};
  }

  // Gives the tensors their parameters' shapes: older files held the elements in one dimension.
  TensorMap shaped(const TensorMap& tensors) const {
    std::map<std::string, at::IntArrayRef> shapes;
    for_each([&](const std::string& name, const at::Tensor& parameter, const Moments&) {
      for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
        for (const char* part : {"", "_codes"}) shapes[name + moment + part] = parameter.sizes();
      }
    });
    TensorMap result;
    for (const auto& [name, tensor] : tensors) {
      const auto shape = shapes.find(name);
      const bool is_flat = shape != shapes.end() && tensor.dim() == 1 &&
                           tensor.numel() == c10::multiply_integers(shape->second);
      result.set(name, is_flat ? tensor.view(shape->second) : tensor);
    }
    return result;
  }

  // `given_state` with the moments of every packed parameter in this optimizer's format. Moments in
  // fp32 or in blocks of another memory order are packed again.
  TensorMap as_kept(const State& given_state) const {
    const State state{shaped(given_state.tensors), given_state.values};
    TensorMap kept;
    std::set<std::string> done;
    for_each([&](const std::string& name, const at::Tensor& parameter, const Moments& moments) {
      for (const bool is_first : {true, false}) {
        const std::string key = name + (is_first ? ".exp_avg" : ".exp_avg_sq");
        const at::Tensor& own = is_first ? moments.first : moments.second;
        const at::Tensor& scale = is_first ? moments.first_scale : moments.second_scale;
        const at::Tensor given = given_moment(state, name, key, parameter, is_first, scale);
        if (!given.defined()) continue;
        const bool is_packed = scale.defined();
        const at::Tensor packed = is_packed ? at::empty_like(own) : given.to(own.scalar_type());
        kept.set(key + (is_packed ? "_codes" : ""), packed);
        if (is_packed) {
          kept.set(key + "_scales", at::empty_like(scale));
          const at::Tensor values = given.to(parameter.device(), at::kFloat);
          to_eight_bit(in_memory(values, parameter.strides()), is_first, kPackedBlock, packed,
                       kept.at(key + "_scales"));
        }
        for (const char* part : {"", "_codes", "_scales"}) done.insert(key + part);
      }
    });
    for (const auto& [name, tensor] : state.tensors) {
      if (done.count(name) == 0) kept.set(name, tensor);
    }
    return kept;
  }

  // A moment of `state` in fp32 and its parameter's shape, if it must be packed again; undefined if
  // it already has this optimizer's format or is missing.
  static at::Tensor given_moment(const State& state, const std::string& name,
                                 const std::string& key, const at::Tensor& parameter, bool is_first,
                                 const at::Tensor& scale) {
    const auto fits = [&](const at::Tensor* tensor) {
      return tensor != nullptr && tensor->sizes() == parameter.sizes();
    };
    const at::Tensor* plain = state.tensors.find(key);
    if (fits(plain)) return plain->scalar_type() == at::kFloat ? *plain : at::Tensor();
    const at::Tensor* codes = state.tensors.find(key + "_codes");
    const at::Tensor* scales = state.tensors.find(key + "_scales");
    if (!scale.defined() || !fits(codes) || scales == nullptr) return {};
    const auto order = state.values.find(name + ".order");
    const auto* text =
        order == state.values.end() ? nullptr : std::get_if<std::string>(&order->second);
    const auto strides = strides_of_order(parameter.sizes(), text == nullptr ? "" : *text);
    const bool same = same_order(parameter.sizes(), strides, parameter.strides());
    if (same || scales->sizes() != scale.sizes() || codes->scalar_type() != at::kByte) return {};
    return from_eight_bit(in_memory(*codes, strides), *scales, is_first, kPackedBlock)
        .as_strided(parameter.sizes(), strides);
  }

  MomentNumbers numbers(const Group& group, double learning_rate, double step) const {
    const double rate = learning_rate * group.learning_rate_scale;
    const bool is_decoupled = decouples_decay(options_);
    MomentNumbers n{};
    n.beta1 = options_.beta1;
    n.beta2 = *options_.beta2;
    n.eps = *options_.eps;
    n.weight_decay = is_decoupled ? 0 : group.weight_decay;
    n.kept = is_decoupled ? 1 - rate * group.weight_decay : 1;
    n.gradient_rate = 0;
    n.momentum_rate = rate / (1 - std::pow(n.beta1, step));
    n.second_scale = 1 / (1 - std::pow(n.beta2, step));
    n.is_adaptive = true;
    return n;
  }

  void update(const at::Tensor& parameter, const at::Tensor& gradient, Moments& moments,
              const MomentNumbers& numbers, uint32_t step, uint32_t begin) {
    if (is_dry(parameter) && has_cpu_kernels(parameter)) return;
    if (way_ == Way::foreach || !has_cpu_kernels(parameter)) {
      update_by_operations(parameter, gradient, moments, numbers, step, begin);
    } else if (options_.state == "bf16") {
      half_moment_elements(
          {parameter.numel(), parameter.mutable_data_ptr<float>(), gradient.const_data_ptr<float>(),
           reinterpret_cast<uint16_t*>(moments.first.mutable_data_ptr<at::BFloat16>()),
           reinterpret_cast<uint16_t*>(moments.second.mutable_data_ptr<at::BFloat16>()), step,
           begin},
          numbers);
    } else {
      packed_moment_elements(
          {parameter.numel(), parameter.mutable_data_ptr<float>(), gradient.const_data_ptr<float>(),
           moments.first.mutable_data_ptr<uint8_t>(), moments.first_scale.mutable_data_ptr<float>(),
           moments.second.mutable_data_ptr<uint8_t>(),
           moments.second_scale.mutable_data_ptr<float>()},
          numbers);
    }
  }

  // For other devices: the same arithmetic on the unpacked moments of one parameter at a time.
  static void update_by_operations(const at::Tensor& parameter, const at::Tensor& gradient,
                                   Moments& moments, const MomentNumbers& n, uint32_t step,
                                   uint32_t begin) {
    at::Tensor flat = in_memory(parameter);
    const at::Tensor own = in_memory(gradient);
    const at::Tensor g = n.weight_decay != 0 ? own.add(flat, n.weight_decay) : own;
    at::Tensor first = unpacked(moments.first, moments.first_scale, true);
    at::Tensor second = unpacked(moments.second, moments.second_scale, false);
    first.lerp_(g, 1 - n.beta1);
    second.mul_(n.beta2).addcmul_(g, g, 1 - n.beta2);
    flat.mul_(n.kept).addcdiv_(first, (second * n.second_scale).sqrt_().add_(n.eps),
                               -n.momentum_rate);
    if (moments.first_scale.defined()) {
      to_eight_bit(first, true, kPackedBlock, moments.first, moments.first_scale);
      to_eight_bit(second, false, kPackedBlock, moments.second, moments.second_scale);
      return;
    }
    const at::Tensor random = random_of_elements(first, step, begin);
    in_memory(moments.first).copy_(rounded_to_half(first, random));
    in_memory(moments.second).copy_(rounded_to_half(second, random.bitwise_right_shift(16)));
  }

  static at::Tensor unpacked(const at::Tensor& moment, const at::Tensor& scale, bool is_signed) {
    if (!scale.defined()) return in_memory(moment).to(at::kFloat);
    return from_eight_bit(moment, scale, is_signed, kPackedBlock);
  }

  // 32 random bits for each element, as int64. The hash is that of half_moment_elements, in tensor
  // operations.
  static at::Tensor random_of_elements(const at::Tensor& values, uint32_t draw, uint32_t begin) {
    constexpr int64_t kLow = 0xFFFFFFFF;
    const auto mixed = [](at::Tensor x) {
      x = (x ^ x.bitwise_right_shift(16)).mul_(int64_t{0x7feb352d}).bitwise_and_(kLow);
      x = (x ^ x.bitwise_right_shift(15)).mul_(int64_t{0x846ca68b}).bitwise_and_(kLow);
      return x ^ x.bitwise_right_shift(16);
    };
    const at::Tensor elements =
        at::arange(values.numel(), values.options().dtype(at::kLong)).add_(int64_t{begin});
    return mixed(mixed(elements.bitwise_and_(kLow)).bitwise_xor_(int64_t{draw}));
  }

  // Stochastic rounding: adds 16 random bits below the last bit that is kept.
  static at::Tensor rounded_to_half(const at::Tensor& values, const at::Tensor& random) {
    const at::Tensor bits = values.contiguous().view(at::kInt);
    return (bits + random.bitwise_and(0xFFFF).to(at::kInt)).bitwise_and_(-65536).view(at::kFloat);
  }

  OptimizerOptions options_;
  Way way_;
  std::vector<Group> groups_;
  std::vector<std::vector<Moments>> moments_;  // per group and member
  std::unique_ptr<TensorOptimizer> rest_;
  std::vector<int64_t> begins_;  // slices' first elements, in the order given at build
};

}  // namespace

std::unique_ptr<Optimizer> make_packed_adamw(const OptimizerOptions& options,
                                             const std::vector<NamedParameter>& parameters,
                                             Way way) {
  auto groups = make_groups(options, parameters, [&](const NamedParameter& parameter) {
    const at::Tensor& tensor = parameter.rule_tensor();
    const bool fits = tensor.scalar_type() == at::kFloat;
    const bool is_large = tensor.numel() >= kLeastPacked;
    const bool excepted = matches_any(options.fp32_state, parameter.rule_name());
    return fits && is_large && !excepted ? kPacked : 0;
  });
  std::vector<Group> packed, rest;
  for (Group& group : groups) (group.part == kPacked ? packed : rest).push_back(std::move(group));
  std::vector<int64_t> begins;
  begins.reserve(parameters.size());
  for (const NamedParameter& parameter : parameters) begins.push_back(parameter.begin);
  return std::make_unique<PackedAdamW>(options, std::move(packed), std::move(rest), way,
                                       std::move(begins));
}

}  // namespace tanren
