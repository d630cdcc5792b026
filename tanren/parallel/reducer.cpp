#include "tanren/parallel/reducer.h"

#include "tanren/base/memory_tag.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tanren {

namespace {

// How many earlier transient buckets may still be under way when the next one is sent.
constexpr size_t kInFlight = 2;

}  // namespace

Reducer::Reducer(std::vector<Gradients*> gradients, Communicator& communicator,
                 const ReducerOptions& options)
    : gradients_(std::move(gradients)), communicator_(communicator), overlap_(options.overlap) {
  if (communicator_.world_size() == 1) return;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    add_buckets(i, options);
    gradients_[i]->on_fired([this, i](size_t parameter) { fired(i, parameter); });
  }
  order_.resize(buckets_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  begin();
}

Reducer::~Reducer() {
  for (Gradients* gradients : gradients_) gradients->on_fired({});
}

void Reducer::add_buckets(size_t objective, const ReducerOptions& options) {
  const Gradients& gradients = *gradients_[objective];
  const bool shared = gradients.sharding().on();
  const int64_t first = buckets_.empty() ? options.first_bucket_bytes : options.bucket_bytes;
  const FlatLayout layout =
      shared ? gradients.layout()
             : lay_out(gradients.parameters(),
                       {.first_bucket_bytes = first, .bucket_bytes = options.bucket_bytes});
  const size_t before = buckets_.size();
  for (size_t i = 0; i < layout.buckets.size(); ++i) {
    const auto& [dtype, size, members] = layout.buckets[i];
    Bucket bucket{.objective = objective, .index = i, .shared = shared};
    bucket.members = bucket.missing = std::ssize(members);
    if (!shared) {
      const Gradients::Place place = gradients.place(members.front());
      bucket.range = gradients.flat()[place.buffer].narrow(0, place.offset, size);
    }
    if (!shared && options.wire && dtype == at::kFloat) {
      const MemoryScope memory(MemoryKind::gradients);
      bucket.wire = at::empty_like(bucket.range, bucket.range.options().dtype(*options.wire));
    }
    buckets_.push_back(std::move(bucket));
  }
  complete_.emplace_back(layout.places.size(), 0);
  bucket_of_.emplace_back();
  for (const auto& place : layout.places) bucket_of_.back().push_back(before + place.bucket);
}

// A model may use its parameters in another order than it registers them; a bucket would then wait
// for those before it. Buckets keep their members, so every sum keeps its bits.
void Reducer::agree_order() {
  has_agreed_ = true;
  if (!overlap_ || buckets_.size() < 2) return;
  for (const size_t bucket : order_) {
    if (std::find(observed_.begin(), observed_.end(), bucket) == observed_.end()) {
      observed_.push_back(bucket);
    }
  }
  const std::vector<int64_t> mine(observed_.begin(), observed_.end());
  const at::Tensor order = at::tensor(mine, at::kLong).to(communicator_.device());
  communicator_.start_broadcast(order, /*root=*/0)->wait_on_host();
  const at::Tensor host = order.to(at::kCPU);
  std::copy_n(host.const_data_ptr<int64_t>(), order_.size(), order_.begin());
}

void Reducer::begin(const std::vector<uint8_t>& in_turn) {
  in_turn_ = in_turn;
  if (!is_first_window_ && !has_agreed_) agree_order();
  works_.clear();
  next_ = landed_ = 0;
  overlapped_ = 0;
  last_ = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.members;
  for (auto& flags : complete_) std::fill(flags.begin(), flags.end(), 0);
}

void Reducer::fired(size_t objective, size_t parameter) {
  uint8_t& complete = complete_[objective][parameter];
  if (!last_ || !overlap_ || complete != 0) return;
  complete = 1;
  const size_t bucket = bucket_of_[objective][parameter];
  if (--buckets_[bucket].missing == 0 && is_first_window_) observed_.push_back(bucket);
  const auto is_complete = [this](const Bucket& next) { return next.missing == 0 || !sends(next); };
  while (next_ < order_.size() && is_complete(buckets_[order_[next_]])) start_next();
}

bool Reducer::sends(const Bucket& bucket) const {
  return in_turn_.empty() || in_turn_[bucket.objective] != 0;
}

double Reducer::wire_factor(const Bucket& bucket) const {
  return bucket.wire.scalar_type() == at::kHalf ? communicator_.world_size() : 1.0;
}

// If starting throws, the bucket stays the next one: finish() tries it again.
void Reducer::start_next() {
  Bucket& bucket = buckets_[order_[next_]];
  if (!sends(bucket)) {
    works_.emplace_back();
    ++next_;
    return;
  }
  gradients_[bucket.objective]->note_sent();
  if (bucket.shared) {
    Gradients& gradients = *gradients_[bucket.objective];
    if (gradients.sharding().transient) land_until(next_ - std::min(next_, kInFlight));
    const at::Tensor whole = gradients.bucket(bucket.index);
    works_.push_back(communicator_.start_sum_scatter(gradients.part(bucket.index), whole));
    ++reductions_;
    ++next_;
    return;
  }
  if (bucket.wire.defined()) {
    const at::NoGradGuard no_grad;
    const double factor = wire_factor(bucket);
    if (factor == 1.0) {
      bucket.wire.copy_(bucket.range);
    } else {
      at::mul_out(bucket.wire, bucket.range, at::scalar_tensor(1 / factor, bucket.range.options()));
    }
  }
  works_.push_back(communicator_.start_sum(bucket.wire.defined() ? bucket.wire : bucket.range));
  ++reductions_;
  ++next_;
}

void Reducer::land(const Bucket& bucket) const {
  if (bucket.shared) gradients_[bucket.objective]->release(bucket.index);
  if (!bucket.wire.defined()) return;
  const at::NoGradGuard no_grad;
  at::Tensor(bucket.range).copy_(bucket.wire);
  const double factor = wire_factor(bucket);
  if (factor != 1.0) at::Tensor(bucket.range).mul_(factor);
}

// Waits until the buckets before place `end` of order_ have arrived.
void Reducer::land_until(size_t end) {
  for (; landed_ < end; ++landed_) {
    if (!works_[landed_]) continue;
    works_[landed_]->wait();
    land(buckets_[order_[landed_]]);
    works_[landed_].reset();
  }
}

void Reducer::finish() {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    if (in_turn_.empty() || in_turn_[i] != 0) gradients_[i]->reattach();
  }
  overlapped_ = static_cast<int64_t>(next_);
  while (next_ < order_.size()) start_next();
  land_until(next_);
  is_first_window_ = false;
  works_.clear();
  landed_ = 0;
}

}  // namespace tanren
