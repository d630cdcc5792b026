#include "tanren/parallel/reducer.h"

#include "tanren/base/memory_tag.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace tanren {

Reducer::Reducer(std::vector<Gradients*> gradients, Communicator& communicator,
                 const ReducerOptions& options)
    : gradients_(std::move(gradients)), communicator_(communicator), overlap_(options.overlap) {
  if (communicator_.world_size() == 1) return;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    add_buckets(i, options);
    gradients_[i]->on_fired([this, i](size_t parameter) { fired(i, parameter); });
  }
  begin();
}

Reducer::~Reducer() {
  for (Gradients* gradients : gradients_) gradients->on_fired({});
}

// From the last parameter to the first. A bucket ends where it is full, or where the next one's
// gradient lies in another buffer.
void Reducer::add_buckets(size_t objective, const ReducerOptions& options) {
  const Gradients& gradients = *gradients_[objective];
  const size_t count = gradients.parameters().size();
  bucket_of_.emplace_back(count);
  complete_.emplace_back(count, 0);
  size_t buffer = 0;
  int64_t begin = 0, end = 0, members = 0;
  const auto close = [&] {
    if (members == 0) return;
    const at::Tensor range = gradients.flat()[buffer].narrow(0, begin, end - begin);
    at::Tensor wire;
    if (options.wire && range.scalar_type() == at::kFloat) {
      const MemoryScope memory(MemoryKind::gradients);
      wire = at::empty_like(range, range.options().dtype(*options.wire));
    }
    buckets_.push_back({range, wire, members, members});
    members = 0;
  };
  for (size_t i = count; i-- > 0;) {
    const Gradients::Place place = gradients.place(i);
    const int64_t most = buckets_.empty() ? options.first_bucket_bytes : options.bucket_bytes;
    const auto size = static_cast<int64_t>(gradients.flat()[place.buffer].element_size());
    const bool joins = members > 0 && place.buffer == buffer &&
                       place.offset + place.numel == begin && (end - place.offset) * size <= most;
    if (!joins) {
      close();
      buffer = place.buffer;
      end = place.offset + place.numel;
    }
    begin = place.offset;
    ++members;
    bucket_of_[objective][i] = buckets_.size();
  }
  close();
}

void Reducer::begin() {
  works_.clear();
  next_ = 0;
  overlapped_ = 0;
  last_ = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.members;
  for (auto& flags : complete_) std::fill(flags.begin(), flags.end(), 0);
}

void Reducer::fired(size_t objective, size_t parameter) {
  uint8_t& complete = complete_[objective][parameter];
  if (!last_ || !overlap_ || complete != 0) return;
  complete = 1;
  --buckets_[bucket_of_[objective][parameter]].missing;
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) start_next();
}

double Reducer::wire_factor(const Bucket& bucket) const {
  return bucket.wire.scalar_type() == at::kHalf ? communicator_.world_size() : 1.0;
}

// A start that throws leaves the bucket where it was: finish() tries it again.
void Reducer::start_next() {
  const Bucket& bucket = buckets_[next_];
  if (bucket.wire.defined()) {
    const at::NoGradGuard no_grad;
    const double factor = wire_factor(bucket);
    if (factor == 1.0) {
      at::Tensor(bucket.wire).copy_(bucket.range);
    } else {
      at::Tensor wire = bucket.wire;
      at::mul_out(wire, bucket.range, at::scalar_tensor(1 / factor, bucket.range.options()));
    }
  }
  works_.push_back(communicator_.start_sum(bucket.wire.defined() ? bucket.wire : bucket.range));
  ++reductions_;
  ++next_;
}

void Reducer::land(const Bucket& bucket) const {
  if (!bucket.wire.defined()) return;
  const at::NoGradGuard no_grad;
  at::Tensor(bucket.range).copy_(bucket.wire);
  const double factor = wire_factor(bucket);
  if (factor != 1.0) at::Tensor(bucket.range).mul_(factor);
}

void Reducer::finish() {
  overlapped_ = static_cast<int64_t>(next_);
  while (next_ < buckets_.size()) start_next();
  for (size_t i = 0; i < works_.size(); ++i) {
    works_[i]->wait();
    land(buckets_[i]);
  }
  works_.clear();
}

}  // namespace tanren
