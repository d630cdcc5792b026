#include "tanren/parallel/reducer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace tanren {

Reducer::Reducer(std::vector<Gradients*> gradients, Communicator& communicator,
                 const ReducerOptions& options)
    : gradients_(std::move(gradients)), communicator_(communicator) {
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
    buckets_.push_back({range, members, members});
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
  if (!last_ || complete != 0) return;
  complete = 1;
  --buckets_[bucket_of_[objective][parameter]].missing;
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) start_next();
}

void Reducer::start_next() { works_.push_back(communicator_.start_sum(buckets_[next_++].range)); }

void Reducer::finish() {
  overlapped_ = static_cast<int64_t>(next_);
  while (next_ < buckets_.size()) start_next();
  for (const auto& work : works_) work->wait();
  works_.clear();
}

}  // namespace tanren
