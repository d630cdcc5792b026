#include "tanren/parallel/gradients.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/ops/global_norm.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace tanren {

namespace {

// A gradient that backward has newly created may be sparse (an embedding's).
void put_into(at::Tensor view, const at::Tensor& gradient) {
  if (gradient.layout() == at::kStrided) {
    view.copy_(gradient);
  } else {
    view.zero_().add_(gradient);
  }
}

bool lies_in(const at::Tensor& gradient, const at::Tensor& bucket) {
  return gradient.defined() && gradient.layout() == at::kStrided && gradient.is_alias_of(bucket);
}

}  // namespace

struct Gradients::Fired {
  std::vector<uint8_t> flags;  // in this window
  size_t count = 0;
  std::vector<uint8_t> in_microstep;
  std::function<void(size_t)> told;
};

// Transient buckets; the hooks make them.
struct Gradients::Buckets {
  FlatLayout layout;
  at::TensorOptions options;
  std::vector<at::Tensor> whole;  // undefined: not allocated
  std::vector<uint8_t> reduced;   // in this window, and freed

  const at::Tensor& make(size_t index) {
    if (!whole[index].defined()) {
      const MemoryScope memory(MemoryKind::gradients);
      const FlatLayout::Bucket& bucket = layout.buckets[index];
      whole[index] = at::zeros({bucket.size}, options.dtype(bucket.dtype));
    }
    return whole[index];
  }

  // Moves a parameter's first gradient of a window, which backward has just put there, to its
  // place.
  void take_in(const at::Tensor& parameter, size_t index) {
    const FlatLayout::Place& place = layout.places[index];
    at::Tensor& gradient = parameter.mutable_grad();
    const at::Tensor& bucket = whole[place.bucket];
    if (bucket.defined() && lies_in(gradient, bucket)) return;
    if (reduced[place.bucket] != 0) {
      throw Error(
          "[parallel] a parameter's gradient grew after its sum had gone to the other ranks: it "
          "is used in two recomputed blocks; set parallel.overlap = false or parallel.zero = 1");
    }
    const at::NoGradGuard no_grad;
    const at::Tensor first = std::move(gradient);  // lost if memory runs out: it is computed again
    gradient = at::Tensor();
    at::Tensor view =
        make(place.bucket).as_strided(parameter.sizes(), parameter.strides(), place.offset);
    put_into(view, first);
    gradient = std::move(view);
  }
};

// The view that each parameter's .grad must be.
struct Gradients::Views {
  std::vector<at::Tensor> all;

  // Puts the view back. If backward created a gradient after .grad was set to none, the view gets
  // its values: the sum starts again, as in torch. Returns false if .grad is none; the view is then
  // 0.
  bool take_in(const at::Tensor& parameter, size_t index) const {
    at::Tensor& gradient = parameter.mutable_grad();
    const at::Tensor& view = all[index];
    if (gradient.is_same(view)) return true;
    const at::NoGradGuard no_grad;
    const bool is_there = gradient.defined();
    if (is_there) {
      put_into(view, gradient);
    } else {
      at::Tensor(view).zero_();
    }
    gradient = view;
    return is_there;
  }
};

class Gradients::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::shared_ptr<Fired> fired, std::shared_ptr<Buckets> buckets,
       const std::shared_ptr<Views>& views, size_t index)
      : fired_(std::move(fired)), buckets_(std::move(buckets)), views_(views), index_(index) {}
  void operator()(const at::Tensor& parameter) override {
    if (buckets_) buckets_->take_in(parameter, index_);
    if (const auto views = views_.lock()) views->take_in(parameter, index_);
    fired_->in_microstep[index_] = 1;
    auto& flag = fired_->flags[index_];
    fired_->count += flag == 0 ? 1 : 0;
    flag = 1;
    if (fired_->told) fired_->told(index_);
  }

 private:
  std::shared_ptr<Fired> fired_;
  std::shared_ptr<Buckets> buckets_;
  std::weak_ptr<Views> views_;  // lives as long as the Gradients, which a hook may outlive
  size_t index_;
};

namespace {

// The parameter's dtype, unless another one is set for its gradient (set_grad_dtype).
at::ScalarType gradient_dtype(const at::Tensor& parameter) {
  return parameter.grad_dtype().value_or(parameter.scalar_type());
}

void check_trained(const at::Tensor& parameter) {
  if (!parameter.is_leaf() || !parameter.requires_grad()) {
    throw Error(
        "[parallel] a trained parameter must be a leaf that requires grad; create it "
        "with register_parameter");
  }
  if (!parameter.is_non_overlapping_and_dense()) {
    throw Error("[parallel] a trained parameter's memory has gaps or overlaps; make it contiguous");
  }
}

}  // namespace

Gradients::Gradients(std::vector<at::Tensor> parameters, const Sharding& sharding)
    : parameters_(std::move(parameters)), sharding_(sharding), fired_(std::make_shared<Fired>()) {
  fired_->flags.assign(parameters_.size(), 0);
  fired_->in_microstep.assign(parameters_.size(), 0);
  for (const auto& parameter : parameters_) check_trained(parameter);
  const MemoryScope memory(MemoryKind::gradients);
  if (sharding_.on() && !parameters_.empty()) {
    make_buckets();
  } else {
    make_flat();
  }
  if (!buckets_) {
    views_ = std::make_shared<Views>();
    for (const auto& parameter : parameters_) views_->all.push_back(parameter.grad());
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[i], std::make_unique<Hook>(fired_, buckets_, views_, i));
  }
  versions_ = versions();
}

void Gradients::make_flat() {
  std::map<at::ScalarType, int64_t> sizes;
  for (const auto& parameter : parameters_) sizes[gradient_dtype(parameter)] += parameter.numel();
  std::map<at::ScalarType, size_t> buffers;
  for (const auto& [dtype, size] : sizes) {
    buffers[dtype] = flat_.size();
    flat_.push_back(at::zeros({size}, parameters_[0].options().dtype(dtype).requires_grad(false)));
  }
  std::map<at::ScalarType, int64_t> offsets;
  for (auto& parameter : parameters_) {
    const at::ScalarType dtype = gradient_dtype(parameter);
    auto& offset = offsets[dtype];
    const size_t buffer = buffers[dtype];
    parameter.mutable_grad() =
        flat_[buffer].as_strided(parameter.sizes(), parameter.strides(), offset);
    places_.push_back({buffer, offset, parameter.numel()});
    offset += parameter.numel();
  }
}

void Gradients::make_buckets() {
  const int64_t parts = sharding_.layout.parts;
  layout_ = lay_out(parameters_, sharding_.layout);
  slices_ = slices_of(layout_, sharding_.rank, parts);
  const at::TensorOptions options = parameters_[0].options().requires_grad(false);
  for (const auto& bucket : layout_.buckets) {
    const int64_t part = bucket.size / parts;
    if (sharding_.transient) {
      parts_.push_back(at::zeros({part}, options.dtype(bucket.dtype)));
      continue;
    }
    flat_.push_back(at::zeros({bucket.size}, options.dtype(bucket.dtype)));
    parts_.push_back(flat_.back().narrow(0, sharding_.rank * part, part));
  }
  if (sharding_.transient) {
    buckets_ = std::make_shared<Buckets>(Buckets{layout_, options,
                                                 std::vector<at::Tensor>(layout_.buckets.size()),
                                                 std::vector<uint8_t>(layout_.buckets.size(), 0)});
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const FlatLayout::Place& place = layout_.places[i];
    places_.push_back({place.bucket, place.offset, place.numel});
    at::Tensor& gradient = parameters_[i].mutable_grad();
    gradient = sharding_.transient
                   ? at::Tensor()
                   : flat_[place.bucket].as_strided(parameters_[i].sizes(),
                                                    parameters_[i].strides(), place.offset);
  }
}

Gradients::~Gradients() = default;
Gradients::Gradients(Gradients&&) noexcept = default;
Gradients& Gradients::operator=(Gradients&&) noexcept = default;

void Gradients::reattach() const {
  if (!views_) return;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (views_->take_in(parameters_[i], i)) continue;
    auto& flag = fired_->flags[i];  // a .grad of none was not reached, as in torch
    fired_->count -= flag == 0 ? 0 : 1;
    flag = 0;
  }
}

std::vector<int64_t> Gradients::versions() const {
  std::vector<int64_t> versions;
  for (const auto& flat : flat_) versions.push_back(static_cast<int64_t>(flat._version()));
  for (size_t i = 0; buckets_ && i < buckets_->whole.size(); ++i) {
    const at::Tensor& whole = buckets_->whole[i];
    versions.push_back(whole.defined() ? static_cast<int64_t>(whole._version()) : -1);
  }
  return versions;
}

std::optional<Gradients::Change> Gradients::first_change() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    bool is_gone = false;
    if (views_) {
      is_gone = !gradient.is_same(views_->all[i]);
    } else if (const at::Tensor& bucket = buckets_->whole[places_[i].buffer]; bucket.defined()) {
      is_gone = fired_->flags[i] != 0 && !lies_in(gradient, bucket);
    }
    if (is_gone || fired_->in_microstep[i] != 0) return Change{i, /*is_this_one=*/true};
  }
  const auto now = versions();
  for (size_t i = 0; i < parameters_.size() && !is_sent_; ++i) {
    const size_t flat = places_[i].buffer;
    if (now[flat] != versions_[flat]) return Change{i, /*is_this_one=*/false};
  }
  return std::nullopt;
}

void Gradients::zero() {
  reattach();
  for (auto& flat : flat_) flat.zero_();
  for (size_t i = 0; buckets_ && i < buckets_->whole.size(); ++i) {
    release(i);
    buckets_->reduced[i] = 0;
  }
  std::fill(fired_->flags.begin(), fired_->flags.end(), 0);
  fired_->count = 0;
  is_sent_ = false;
}

at::Tensor Gradients::slice_gradient(const Slice& slice) const {
  return parts_[slice.bucket].narrow(0, slice.offset, slice.end - slice.begin);
}

at::Tensor Gradients::bucket(size_t index) {
  return buckets_ ? buckets_->make(index) : flat_[index];
}

void Gradients::release(size_t index) {
  if (!buckets_) return;
  for (const size_t member : layout_.buckets[index].members) {
    parameters_[member].mutable_grad().reset();
  }
  buckets_->whole[index].reset();
  buckets_->reduced[index] = 1;
}

void Gradients::begin_microstep() {
  std::fill(fired_->in_microstep.begin(), fired_->in_microstep.end(), 0);
  versions_ = versions();
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

at::Tensor Gradients::whole(size_t index) {
  reattach();
  const auto& [buffer, offset, numel] = places_[index];
  return bucket(buffer).narrow(0, offset, numel);
}

int64_t Gradients::first_non_finite() const {
  reattach();
  // Makes no mask of the gradient's size, because memory may be short.
  const auto bad = [](const at::Tensor& values) { return !std::isfinite(exact_norm({values})); };
  if (sharding_.on()) {
    for (const Slice& slice : slices_) {
      if (bad(slice_gradient(slice))) return static_cast<int64_t>(slice.parameter);
    }
    return -1;
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (bad(parameters_[i].grad())) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace tanren
