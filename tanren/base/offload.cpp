#include "tanren/base/offload.h"

#include "tanren/base/dry_scope.h"
#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"
#include "tanren/base/saved_tensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

namespace tanren {

namespace {

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// A storage is moved whole, so that its views are moved once; not for a view of less than this part.
constexpr int64_t kLeastPart = 8;

// The elements of a tensor's whole storage, in a row.
at::Tensor whole_of(const at::Tensor& tensor) {
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.element_size());
  return tensor.detach().as_strided({count}, {1}, 0);
}

// One storage, away in host memory.
class Away {
 public:
  // Starts the copy. On the CPU there is no stream.
  Away(const at::Tensor& tensor, const std::optional<c10::Stream>& stream)
      : device_(tensor.device()) {
    const MemoryScope memory(MemoryKind::other);
    const at::Tensor whole = whole_of(tensor);
    if (!stream) {
      host_ = whole.clone();
      return;
    }
    const c10::impl::VirtualGuardImpl devices(device_.type());
    c10::Event made(device_.type());
    made.record(devices.getStream(device_));
    made.block(*stream);
    const c10::StreamGuard guard(*stream);
    host_ = at::empty(whole.sizes(), whole.options().device(at::kCPU).pinned_memory(true));
    host_.copy_(whole, /*non_blocking=*/true);
    whole.record_stream(*stream);  // its memory is not to be given away before the copy is through
    arrival_.emplace(device_.type());
    arrival_->record(*stream);
  }

  int64_t nbytes() const { return static_cast<int64_t>(host_.nbytes()); }

  // The elements on the device again: the same ones for all who have them at the same time.
  at::Tensor back() {
    const std::lock_guard lock(mutex_);
    if (back_) {
      if (auto storage = back_->lock()) {
        return at::empty({0}, host_.options().device(device_).pinned_memory(false))
            .set_(at::Storage(std::move(storage)), 0, host_.sizes(), {1});
      }
    }
    const MemoryScope memory(MemoryKind::activations);
    if (arrival_) {
      arrival_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    }
    at::Tensor whole =
        at::empty(host_.sizes(), host_.options().device(device_).pinned_memory(false));
    whole.copy_(host_, /*non_blocking=*/true);
    back_.emplace(whole.storage().getWeakStorageImpl());
    return whole;
  }

 private:
  at::Device device_;
  at::Tensor host_;
  std::optional<c10::Event> arrival_;
  std::mutex mutex_;
  std::optional<WeakStorage> back_;
};

// A parameter, or the cast of one, which autocast keeps until the window ends; or a view of these.
bool is_of_parameter(const at::Tensor& tensor) {
  const at::TensorBase& seen = tensor;
  const at::TensorBase& base = seen.is_view() ? seen._base() : seen;
  if (base.is_leaf()) return base.requires_grad();
  const auto& cast = base.grad_fn();
  if (cast->name() != "ToCopyBackward0") return false;
  const auto& from = cast->next_edge(0).function;
  return dynamic_cast<const torch::autograd::AccumulateGrad*>(from.get()) != nullptr;
}

// What moves the tensors of one forward.
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
  }

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

  // What its storage is away as: moved once for all who save it unchanged.
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
    std::optional<WeakStorage> storage;  // held weakly: no other gets its address meanwhile
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
  std::map<const c10::StorageImpl*, Moved> all_;
  int64_t copied_bytes_ = 0;
};

// One saved tensor.
class MovedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit MovedTensor(Mover& mover) : mover_(mover) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    // A view that was made without gradients calls itself a leaf, and is none.
    if (tensor.is_leaf() && tensor.requires_grad() && !tensor.is_view()) {
      kept_ = tensor;
      return;
    }
    if (!tensor.is_inference()) {
      counter_ = torch::autograd::impl::version_counter(tensor);
      version_ = counter_.current_version();
    }
    if (mover_.stays(tensor)) {
      kept_ = tensor.detach();  // with its graph, an output would keep the node that keeps it
      return;
    }
    options_ = tensor.options().requires_grad(false);
    sizes_ = tensor.sizes().vec();
    strides_ = tensor.strides().vec();
    offset_ = tensor.storage_offset();
    // A dry run counts the device's bytes: there is nothing to bring back but the room.
    if (!is_dry(tensor)) away_ = mover_.put_away(tensor);
  }

  at::Tensor call_unpack_hook() override {
    if (counter_.enabled() && counter_.current_version() != version_) refuse_changed();
    if (kept_.defined()) return kept_;
    const at::NoGradGuard no_grad;
    if (!away_) return at::empty(sizes_, options_);
    const at::Tensor whole = away_->back();
    return whole.view(options_.dtype().toScalarType()).as_strided(sizes_, strides_, offset_);
  }

 private:
  [[noreturn]] void refuse_changed() const {
    std::string shape;
    for (const auto size : kept_.defined() ? kept_.sizes() : at::IntArrayRef(sizes_)) {
      shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    }
    throw Error("[offload] a tensor [" + shape +
                "] that backward needs was changed in place after it had been saved; let the "
                "model make a new tensor instead");
  }

  Mover& mover_;     // for the forward alone
  at::Tensor kept_;  // where it stays
  c10::VariableVersion counter_{c10::VariableVersion::DISABLED};
  uint32_t version_ = 0;
  at::TensorOptions options_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_ = 0;
  std::shared_ptr<Away> away_;
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
  install_saved_tensor_engine();
  offload_scope = this;
}

OffloadScope::~OffloadScope() { offload_scope = outer_; }

int64_t OffloadScope::copied_bytes() const { return impl_->mover.copied_bytes(); }

OffloadBlock::OffloadBlock(std::string_view name) {
  if (offload_scope == nullptr || SavedTensorScope::current() != nullptr ||
      !at::GradMode::is_enabled() || !matches_any(offload_scope->impl_->patterns, name)) {
    return;
  }
  scope_.emplace(&offload_scope->impl_->mover);
}

}  // namespace tanren
