// Functions shared by the dry runs of a step: batches without values, the plan's threads and
// kernels, and the peak of a trace. Internal to forecast/.
#pragma once

#include "tanren/data/collated.h"
#include "tanren/dry/memory_trace.h"
#include "tanren/forecast/predict.h"

#include <c10/core/DeviceType.h>

#include <cstddef>
#include <cstdint>

namespace tanren {

// Sets the plan's number of threads: some kernels take memory for each thread.
class ThreadsScope {
 public:
  explicit ThreadsScope(int64_t threads);
  ~ThreadsScope();
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

// The device that the plan's dry runs stand for.
c10::DeviceType device_type(const Plan& plan);

// Selects the kernels that the run will use (apply_device_plan).
void use_kernels_of(const Plan& plan);

// Tokens per sample: dim 1 of the first integer field that has one; 0: no sequences.
int64_t sequence_length(const Batch& sample);

// A batch of `size` samples with the fields of `one`. If `length` is above 0, its sequences have
// that many tokens.
GlobalBatch batch_like(const Collated& one, int64_t size, int64_t length);

// Bytes of one sample in a step: its fields, and their copies in another layout or a wider dtype.
int64_t sample_bytes(const Batch& sample, const Plan& plan);

// The largest sum of bytes from event `before` on, and what was alive then.
MemoryPrediction traced_peak(const MemoryTrace& trace, size_t before);

// Adds the workspaces that the device's libraries keep: one for the program's thread and, in a run
// that trains, one for autograd's backward thread.
void add_workspaces(MemoryPrediction& prediction, const Plan& plan, bool trains = true);

// Adds batches that are alive all the time.
void add_batches(MemoryPrediction& prediction, int64_t bytes);

}  // namespace tanren
