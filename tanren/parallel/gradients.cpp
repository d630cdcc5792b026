#include "tanren/parallel/gradients.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>

namespace tanren {

struct Gradients::Fired {
  std::vector<uint8_t> flags;  // in this window
  size_t count = 0;
  std::vector<uint8_t> in_microstep;
  std::function<void(size_t)> told;
};

namespace {

template <typename Fired>
class MarkFired final : public torch::autograd::PostAccumulateGradHook {
 public:
  MarkFired(std::shared_ptr<Fired> fired, size_t index) : fired_(std::move(fired)), index_(index) {}
  void operator()(const at::Tensor&) override {
    fired_->in_microstep[index_] = 1;
    auto& flag = fired_->flags[index_];
    fired_->count += flag == 0 ? 1 : 0;
    flag = 1;
    if (fired_->told) fired_->told(index_);
  }

 private:
  std::shared_ptr<Fired> fired_;
  size_t index_;
};

}  // namespace

Gradients::Gradients(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)), fired_(std::make_shared<Fired>()) {
  fired_->flags.assign(parameters_.size(), 0);
  fired_->in_microstep.assign(parameters_.size(), 0);
  std::map<at::ScalarType, int64_t> sizes;
  for (const auto& parameter : parameters_) {
    if (!parameter.is_leaf() || !parameter.requires_grad()) {
      throw Error(
          "[parallel] a trained parameter must be a leaf that requires grad; create it "
          "with register_parameter");
    }
    if (!parameter.is_non_overlapping_and_dense()) {
      throw Error(
          "[parallel] a trained parameter's memory has gaps or overlaps; make it contiguous");
    }
    sizes[parameter.scalar_type()] += parameter.numel();
  }
  const MemoryScope memory(MemoryKind::gradients);
  std::map<at::ScalarType, size_t> buffers;
  for (const auto& [dtype, size] : sizes) {
    buffers[dtype] = flat_.size();
    flat_.push_back(at::zeros({size}, parameters_[0].options().dtype(dtype).requires_grad(false)));
  }
  std::map<at::ScalarType, int64_t> offsets;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    auto& parameter = parameters_[i];
    auto& offset = offsets[parameter.scalar_type()];
    const size_t buffer = buffers[parameter.scalar_type()];
    parameter.mutable_grad() =
        flat_[buffer].as_strided(parameter.sizes(), parameter.strides(), offset);
    places_.push_back({buffer, offset, parameter.numel()});
    offset += parameter.numel();
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<MarkFired<Fired>>(fired_, i));
  }
}

Gradients::~Gradients() = default;
Gradients::Gradients(Gradients&&) noexcept = default;
Gradients& Gradients::operator=(Gradients&&) noexcept = default;

void Gradients::zero() {
  for (auto& flat : flat_) flat.zero_();
  std::fill(fired_->flags.begin(), fired_->flags.end(), 0);
  fired_->count = 0;
}

void Gradients::begin_microstep() {
  std::fill(fired_->in_microstep.begin(), fired_->in_microstep.end(), 0);
}

bool Gradients::fired_in_microstep(const at::Tensor& parameter) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].is_same(parameter)) return fired_->in_microstep[i] != 0;
  }
  return false;
}

const std::vector<uint8_t>* Gradients::active() const {
  return fired_->count == parameters_.size() ? nullptr : &fired_->flags;
}

void Gradients::set_active(const std::vector<uint8_t>& flags) {
  fired_->flags = flags;
  fired_->count = static_cast<size_t>(std::count(flags.begin(), flags.end(), 1));
}

void Gradients::on_fired(std::function<void(size_t)> told) { fired_->told = std::move(told); }

Gradients::Place Gradients::place(size_t index) const { return places_[index]; }

int64_t Gradients::first_non_finite() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!at::isfinite(parameters_[i].grad()).all().item<bool>()) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace tanren
