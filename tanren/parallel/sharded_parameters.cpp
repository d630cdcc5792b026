#include "tanren/parallel/sharded_parameters.h"

#include "tanren/base/memory_tag.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace tanren {

ShardedParameters::ShardedParameters(const Gradients& gradients) {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryKind::weights);
  const FlatLayout& layout = gradients.layout();
  const auto& parameters = gradients.parameters();
  for (const auto& bucket : layout.buckets) {
    const auto options = parameters[bucket.members.front()].options().requires_grad(false);
    const at::Tensor whole = at::zeros({bucket.size}, options);
    for (const size_t member : bucket.members) {
      at::Tensor parameter = parameters[member];
      at::Tensor place =
          whole.as_strided(parameter.sizes(), parameter.strides(), layout.places[member].offset);
      place.copy_(parameter.detach());
      parameter.set_data(place);
    }
    const int64_t part = bucket.size / gradients.sharding().layout.parts;
    parts_.push_back(whole.narrow(0, gradients.sharding().rank * part, part));
    whole_.push_back(whole);
  }
  for (const Slice& slice : gradients.slices()) {
    at::Tensor own = parts_[slice.bucket].narrow(0, slice.offset, slice.end - slice.begin).detach();
    own.mutable_grad() = gradients.slice_gradient(slice);
    owned_.push_back(std::move(own));
  }
}

// Waits for the gathers that are under way, because they write into the buffers. If one fails, it
// does not wait for the others and throws nothing: the failure is reported where the numbers are
// needed.
ShardedParameters::~ShardedParameters() {
  try {
    wait();
  } catch (const std::exception&) {
    return;
  }
}

void ShardedParameters::start_gather(Communicator& communicator) {
  works_.resize(whole_.size());
  for (size_t i = whole_.size(); i-- > 0;) {
    works_[i] = communicator.start_gather(whole_[i], parts_[i]);
  }
}

void ShardedParameters::wait() {
  for (size_t i = works_.size(); i-- > 0;) {
    if (works_[i]) works_[i]->wait();
    works_[i] = nullptr;
  }
}

void ShardedParameters::wait_for(const c10::StorageImpl* memory) {
  for (size_t i = works_.size(); i-- > 0;) {
    if (!works_[i] || whole_[i].storage().unsafeGetStorageImpl() != memory) continue;
    works_[i]->wait();
    if (whole_[i].is_cpu()) works_[i] = nullptr;  // on a device only the current stream waits
  }
}

int64_t ShardedParameters::num_gathering() const {
  return std::count_if(works_.begin(), works_.end(), [](const auto& work) { return !!work; });
}

namespace {
thread_local WaitOnUse* waits_on_use = nullptr;
}

WaitOnUse::WaitOnUse(std::vector<ShardedParameters*> shards)
    : shards_(std::move(shards)), outer_(std::exchange(waits_on_use, this)) {
  if (shards_.empty()) return;
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&before).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

WaitOnUse::~WaitOnUse() {
  if (handle_) at::removeCallback(*handle_);
  waits_on_use = outer_;
}

void WaitOnUse::finish() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  for (ShardedParameters* shards : shards_) shards->wait();
}

// libtorch ignores what a callback throws, so error_ keeps it.
std::unique_ptr<at::ObserverContext> WaitOnUse::before(const at::RecordFunction& call) {
  // Null during a wait: the wait's own operators must not wait.
  WaitOnUse* self = std::exchange(waits_on_use, nullptr);
  if (self == nullptr) return nullptr;
  try {
    for (const c10::IValue& input : call.inputs()) {
      if (!self->error_) self->look_at(input);
    }
  } catch (const std::exception&) {
    self->error_ = std::current_exception();
  }
  waits_on_use = self;
  return nullptr;
}

void WaitOnUse::look_at(const c10::IValue& input) {
  if (input.isTensor()) {
    const at::Tensor& tensor = input.toTensor();
    if (!tensor.defined() || !tensor.has_storage()) return;
    for (ShardedParameters* shards : shards_) {
      shards->wait_for(tensor.storage().unsafeGetStorageImpl());
    }
  } else if (input.isList()) {
    for (const c10::IValue& item : input.toListRef()) look_at(item);
  }
}

}  // namespace tanren
