#include "tanren/train/batch_stream.h"

#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/names.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

// The loader already gives this count for the whole batch.
constexpr const char* kSamples = "samples";

}  // namespace

BatchStream::BatchStream(Loader loader, const Ranks& ranks)
    : loader_(std::move(loader)), ranks_(ranks) {
  const at::Device device = ranks.data().communicator().device();
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

BatchStream::~BatchStream() {
  if (!ahead_ || !ahead_->sum) return;
  try {
    ahead_->sum->wait();
  } catch (const std::exception&) {  // next() reports the failure to a caller that needs the sum
  }
}

// Ranks agree on the names of the counts, because a rank without samples may not know them.
void BatchStream::agree(const GlobalBatch& first) {
  std::vector<std::string> mine;
  for (const auto& [name, count] : first.counts) {
    if (name != kSamples) mine.push_back(name);
  }
  names_ = ranks_.agree_names(mine);
}

BatchStream::Ahead BatchStream::start() {
  Ahead ahead{.batch = loader_.next(), .counts = {}, .sum = nullptr, .arrival = {}};
  if (!names_) agree(ahead.batch);
  std::vector<double> counts(names_->size(), 0.0);
  for (const auto& [name, count] : ahead.batch.counts) {
    if (name == kSamples) continue;
    const auto found = std::find(names_->begin(), names_->end(), name);
    if (found == names_->end()) {
      throw DataError("[data] the data counts " + name +
                      " in this batch, but no rank's first batch did (" + join(*names_) +
                      "); count it in every batch, 0 where there is none");
    }
    counts[static_cast<size_t>(found - names_->begin())] = count;
  }
  const MemoryScope memory(MemoryKind::batches);
  ahead.counts = at::tensor(counts, at::kDouble);
  if (stream_) {
    sum_on_device(ahead);
  } else {
    ahead.sum = ranks_.data().communicator().start_sum(ahead.counts);
  }
  return ahead;
}

// Sums on a separate stream, so that neither the step's kernels nor the host wait for the other
// ranks. The sums arrive before the step's one device read does.
void BatchStream::sum_on_device(Ahead& ahead) {
  const c10::StreamGuard guard(*stream_);
  Communicator& comm = ranks_.data().communicator();
  const at::Tensor sums = ahead.counts.to(comm.device(), /*non_blocking=*/true);
  comm.sum(sums);
  ahead.counts = at::empty_like(ahead.counts, ahead.counts.options().pinned_memory(true));
  ahead.counts.copy_(sums, /*non_blocking=*/true);
  ahead.arrival.emplace(stream_->device_type());
  ahead.arrival->record(*stream_);
}

GlobalBatch BatchStream::next() {
  if (ranks_.data().alone()) return loader_.next();
  const double waited = ahead_ ? ahead_->batch.wait_seconds : 0;
  if (!ahead_) ahead_ = start();
  Ahead current = std::move(*ahead_);
  ahead_.reset();
  if (current.sum) current.sum->wait();
  if (current.arrival && !current.arrival->query()) current.arrival->synchronize();
  for (size_t i = 0; i < names_->size(); ++i) {
    current.batch.counts[(*names_)[i]] = current.counts.const_data_ptr<double>()[i];
  }
  ahead_ = start();
  // This call waited for the batch after the current one.
  current.batch.wait_seconds = waited > 0 ? ahead_->batch.wait_seconds : current.batch.wait_seconds;
  return std::move(current.batch);
}

}  // namespace tanren
