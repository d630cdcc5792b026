#include "tanren/blocks/offload.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/blocks/saved_tensors.h"
#include "tanren/dry/dry_scope.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace tanren {

namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// A storage is moved whole, so that its views are moved once. A view of less than 1/8 of its
// storage does not cause the move.
constexpr int64_t kLeastPart = 8;

// The elements of a tensor's whole storage as one dimension.
at::Tensor whole_of(const at::Tensor& tensor) {
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.detach().as_strided({count}, {1}, 0);
}

// One storage, moved to host memory. In a dry run it holds only the size.
class Away {
 public:
  // Starts the copy. On the CPU there is no stream, and the copy is complete on return.
  Away(const at::Tensor& tensor, const std::optional<c10::Stream>& stream)
      : device_(tensor.device()), dry_(is_dry(tensor)) {
    const MemoryScope memory(MemoryKind::other);
    const at::Tensor whole = whole_of(tensor);
    count_ = whole.numel();
    options_ = whole.options().requires_grad(false);
    if (dry_) return;
    if (!stream) {
      host_ = whole.clone();
      return;
    }
    follow(*stream);
    const c10::StreamGuard guard(*stream);
    host_ = at::empty(whole.sizes(), whole.options().device(at::kCPU).pinned_memory(true));
    host_.copy_(whole, /*non_blocking=*/true);
    whole.record_stream(*stream);  // its memory must not be reused before the copy is complete
    arrival_.emplace(device_.type());
    arrival_->record(*stream);
  }

  int64_t nbytes() const { return count_ * static_cast<int64_t>(options_.dtype().itemsize()); }

  // Begins the copy back before back() is called; on `stream` if there is one.
  void fetch(const std::optional<c10::Stream>& stream) {
    const std::lock_guard lock(mutex_);
    if (ahead_.defined() || (back_ && !back_->expired())) return;
    const at::Tensor whole = room();
    if (!stream || dry_) {
      fill(whole);
    } else {
      follow(*stream);  // earlier work on this memory may still be running
      const c10::StreamGuard guard(*stream);
      fill(whole);
      whole.record_stream(*stream);
      arrival_.emplace(device_.type());
      arrival_->record(*stream);
    }
    ahead_ = whole;
  }

  // The elements on the device again. While a caller still holds them, other calls return the same
  // memory.
  at::Tensor back() {
    const std::lock_guard lock(mutex_);
    if (back_) {
      if (auto storage = back_->lock()) {
        return at::empty({0}, options_).set_(at::Storage(std::move(storage)), 0, {count_}, {1});
      }
    }
    at::Tensor whole = std::exchange(ahead_, at::Tensor());
    if (arrival_) {
      const c10::Stream now = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
      arrival_->block(now);
      if (whole.defined()) whole.record_stream(now);
    }
    if (!whole.defined()) {
      whole = room();
      fill(whole);
    }
    back_.emplace(whole.storage().getWeakStorageImpl());
    return whole;
  }

 private:
  at::Tensor room() const {
    const MemoryScope memory(MemoryKind::activations);
    return at::empty({count_}, options_);
  }
  void fill(const at::Tensor& whole) const {
    if (!dry_) whole.copy_(host_, /*non_blocking=*/true);
  }
  // Makes `stream` wait for the work that the device's current stream has been given so far.
  void follow(const c10::Stream& stream) const {
    const c10::impl::VirtualGuardImpl devices(device_.type());
    c10::Event given(device_.type());
    given.record(devices.getStream(device_));
    given.block(stream);
  }

  at::Device device_;
  bool dry_;
  int64_t count_ = 0;
  at::TensorOptions options_;
  at::Tensor host_;
  std::optional<c10::Event> arrival_;  // of the last copy
  std::mutex mutex_;
  at::Tensor ahead_;  // on its way back, back() not called yet
  std::optional<WeakStorage> back_;
};

// The blocks of one forward in order, each with the storages that it moved away. When backward
// reaches a block, the storages of the block before it are fetched in parallel.
class Route {
 public:
  explicit Route(const std::optional<c10::Stream>& stream) : stream_(stream) {}

  void begin_block() { blocks_.emplace_back(); }
  // Adds to the current block and returns the block's number.
  size_t add(const std::shared_ptr<Away>& away) {
    blocks_.back().push_back(away);
    return blocks_.size() - 1;
  }

  void reached(size_t block) {
    if (now_.exchange(block) == block || block == 0) return;
    try {
      for (const auto& away : blocks_[block - 1]) {
        if (const auto there = away.lock()) there->fetch(stream_);
      }
    } catch (const c10::OutOfMemoryError&) {  // then back() fetches it
    }
  }

 private:
  std::optional<c10::Stream> stream_;
  std::vector<std::vector<std::weak_ptr<Away>>> blocks_;  // fixed once forward has ended
  std::atomic<size_t> now_ = SIZE_MAX;
};

// Whether `tensor` is a parameter, the cast of one (autocast keeps it until the window ends), or a
// view of either.
bool is_of_parameter(const at::Tensor& tensor) {
  const at::TensorBase& seen = tensor;
  const at::TensorBase& base = seen.is_view() ? seen._base() : seen;
  if (base.is_leaf()) return base.requires_grad();
  const auto& cast = base.grad_fn();
  if (cast->name() != "ToCopyBackward0") return false;
  const auto& from = cast->next_edge(0).function;
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(from.get()) != nullptr;
}

// Moves the tensors of one forward.
class Mover final : public SavedTensorPolicy {
 public:
  explicit Mover(const OffloadOptions& options)
      : device_(options.device), min_bytes_(options.min_bytes) {
    for (const auto& tensor : options.held) {
      if (tensor.defined() && tensor.has_storage()) held_.insert(storage_of(tensor));
    }
    if (!device_.is_cpu()) {
      stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
    }
    route_ = std::make_shared<Route>(stream_);
  }

  const std::shared_ptr<Route>& route() const { return route_; }

  bool stays(const at::Tensor& tensor) const {
    if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_inference() ||
        tensor.is_conj() || tensor.is_neg() || tensor.device() != device_) {
      return true;
    }
    const auto whole = static_cast<int64_t>(tensor.storage().nbytes());
    const auto item = static_cast<int64_t>(tensor.element_size());
    return whole < min_bytes_ || whole == 0 || whole % item != 0 ||
           whole > kLeastPart * item * tensor.numel() || held_.count(storage_of(tensor)) > 0 ||
           is_of_parameter(tensor);
  }

  // Moves the tensor's storage. An unchanged storage is moved once, however often it is saved.
  std::shared_ptr<Away> put_away(const at::Tensor& tensor) {
    Moved& moved = all_[storage_of(tensor)];
    if (moved.storage && !moved.storage->expired() && moved.version == tensor._version()) {
      if (auto away = moved.away.lock()) return away;
    }
    auto away = std::make_shared<Away>(tensor, stream_);
    copied_bytes_ += away->nbytes();
    moved = {tensor.storage().getWeakStorageImpl(), tensor._version(), away};
    return away;
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Moved {
    std::optional<WeakStorage> storage;  // weak: keeps the address from being reused
    int64_t version = -1;
    std::weak_ptr<Away> away;
  };

  static const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }

  at::Device device_;
  int64_t min_bytes_;
  std::set<const c10::StorageImpl*> held_;
  std::optional<c10::Stream> stream_;  // of accelerators
  std::shared_ptr<Route> route_;
  std::map<const c10::StorageImpl*, Moved> all_;
  int64_t copied_bytes_ = 0;
};

// One saved tensor.
class MovedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit MovedTensor(Mover& mover) : mover_(mover) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    // A view that was made without gradients reports that it is a leaf, but is not a parameter.
    if (tensor.is_leaf() && tensor.requires_grad() && !tensor.is_view()) {
      kept_ = tensor;
      return;
    }
    if (!tensor.is_inference()) {
      counter_ = torch::autograd::impl::version_counter(tensor);
      version_ = counter_.current_version();
    }
    if (mover_.stays(tensor)) {
      kept_ = tensor.detach();  // with its graph, an output would keep the node that holds it
      return;
    }
    options_ = tensor.options().requires_grad(false);
    sizes_ = tensor.sizes().vec();
    strides_ = tensor.strides().vec();
    offset_ = tensor.storage_offset();
    away_ = mover_.put_away(tensor);
    route_ = mover_.route();
    block_ = route_->add(away_);
  }

  at::Tensor call_unpack_hook() override {
    if (counter_.enabled() && counter_.current_version() != version_) refuse_changed();
    if (kept_.defined()) return kept_;
    const at::NoGradGuard no_grad;
    route_->reached(block_);
    const at::Tensor whole = away_->back();
    return whole.view(options_.dtype().toScalarType()).as_strided(sizes_, strides_, offset_);
  }

 private:
  [[noreturn]] void refuse_changed() const {
    std::string shape;
    for (const auto size : kept_.defined() ? kept_.sizes() : at::IntArrayRef(sizes_)) {
      shape += (shape.empty() ? "" : ", ") + to_text(size);
    }
    throw Error("[offload] a tensor [" + shape +
                "] that backward needs was changed in place after it had been saved; let the "
                "model make a new tensor instead");
  }

  Mover& mover_;     // valid during the forward only
  at::Tensor kept_;  // if the tensor stays
  c10::VariableVersion counter_{c10::VariableVersion::DISABLED};
  uint32_t version_ = 0;
  at::TensorOptions options_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_ = 0;
  std::shared_ptr<Away> away_;
  std::shared_ptr<Route> route_;
  size_t block_ = 0;  // number on the route
};

std::unique_ptr<torch::autograd::SavedVariableHooks> Mover::hooks() {
  return std::make_unique<MovedTensor>(*this);
}

thread_local const OffloadScope* offload_scope = nullptr;

}  // namespace

struct OffloadScope::Impl {
  explicit Impl(const OffloadOptions& options) : patterns(options.patterns), mover(options) {}
  std::vector<std::string> patterns;
  Mover mover;
};

OffloadScope::OffloadScope(const OffloadOptions& options)
    : impl_(std::make_unique<Impl>(options)), outer_(offload_scope) {
  require_saved_tensor_engine();
  offload_scope = this;
}

OffloadScope::~OffloadScope() { offload_scope = outer_; }

int64_t OffloadScope::copied_bytes() const { return impl_->mover.copied_bytes(); }

OffloadBlock::OffloadBlock(std::string_view name) {
  if (offload_scope == nullptr || SavedTensorScope::current() != nullptr ||
      !at::GradMode::is_enabled() || !matches_any(offload_scope->impl_->patterns, name)) {
    return;
  }
  Mover& mover = offload_scope->impl_->mover;
  mover.route()->begin_block();
  scope_.emplace(&mover);
}

}  // namespace tanren
