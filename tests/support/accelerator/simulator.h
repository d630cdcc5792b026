// What the parts of the simulated accelerator share: its state, streams, launches and waits.
// Streams are numbered over all devices.
#pragma once

#include "tests/support/accelerator/accelerator.h"
#include "tests/support/accelerator/memory.h"
#include "tests/support/accelerator/ordering.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tanren::sim {

constexpr auto kSim = c10::DeviceType::PrivateUse1;
// Streams of a device: 0 is the default one, then those of the pool, then those of groups of ranks.
constexpr int kPoolStreams = 6;
constexpr int kGroupStreams = 5;
constexpr int kStreams = 1 + kPoolStreams + kGroupStreams;

struct OneDevice {
  OneDevice(c10::DeviceIndex number, size_t bytes) : index(number), memory(bytes) {}
  c10::DeviceIndex index;
  DeviceMemory memory;
  Shadow shadow;
  c10::CachingDeviceAllocator::DeviceStats stats;
  std::string fault;  // of a kernel; empty: none
};

struct State {
  Options options;
  std::deque<std::mutex>
      running;                // by stream: held while a kernel of it runs; taken before `mutex`
  std::mutex mutex;           // of all that follows
  std::vector<Clock> clocks;  // by stream
  Clock host;                 // what the host has waited for
  std::deque<OneDevice> devices;
  Counts counts;
  std::map<std::vector<void*>, int64_t> waits;  // by the host's stack
  std::vector<std::string> violations;
  int64_t allocations = 0;
  int64_t failing = 0;
};
State& state();
void make_state(const Options& options);

// A container's index of a stream or a device.
template <class Number>
constexpr size_t at_index(Number number) {
  return static_cast<size_t>(number);
}

// ---- streams (streams.cpp) ----

// The current device of this thread, and the current stream of each.
c10::DeviceIndex current_device();
c10::DeviceIndex exchange_device(c10::DeviceIndex device);
c10::DeviceIndex index_of(c10::Device device);  // the current one, if it has no index
int current_stream(c10::DeviceIndex device);
int exchange_stream(int stream);  // returns the device's stream before

inline int stream_at(c10::DeviceIndex device, int index) { return device * kStreams + index; }
inline c10::DeviceIndex device_of(int stream) {
  return static_cast<c10::DeviceIndex>(stream / kStreams);
}
std::vector<int> streams_of(c10::DeviceIndex device);
std::string name_of(int stream);

// Returns the clock of a stream. Waits until its running kernel has ended.
Clock record(int stream);
// Later launches of `stream` wait for the launches in `clock`.
void block(int stream, const Clock& clock);
// Later launches of `after` wait for the launches that `before` has.
void order(int before, int after);

// ---- launches (streams.cpp) ----

// The bytes of a device that a kernel uses.
struct Use {
  const void* address = nullptr;
  size_t bytes = 0;
  bool writes = false;
};
size_t use_bytes(const at::Tensor& tensor);  // from its first to its last element
Use use_of(const at::Tensor& tensor, bool writes);

// Runs `kernel` on `stream` now, after its uses were judged.
void launch(int stream, const char* operation, const std::vector<Use>& uses,
            const std::function<void()>& kernel);
// Runs `kernel` invisibly for the program: without autograd, autocast or observers.
void on_cpu(const std::function<void()>& kernel);
// Adds a use to the stream's last launch.
void judge(int stream, const char* operation, const Use& use);
void violate(std::string what);  // under the mutex
// The device whose memory has `address`; null: none.
OneDevice* holder_of(const void* address);

// Translates a device address to the one for kernels, and keeps any other address. A tensor becomes
// a CPU tensor on that memory.
void* inside(const void* address);
at::Tensor inside(const at::Tensor& tensor);
inline bool is_here(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kSim;
}

// ---- waits of the host (streams.cpp) ----

// The host waits for the streams and then sees what they had copied to pinned memory. Counts
// `counter`. Throws the fault of their device.
using Counter = int64_t Counts::*;
void wait_for(const std::vector<int>& streams, Counter counter);
// The same for an event of `device`. A null `counter` counts no wait.
void wait_for(const Clock& clock, c10::DeviceIndex device, Counter counter);

// ---- pinned memory (pinned.cpp) ----

c10::Allocator& pinned_allocator();
bool is_pinned(const void* address);
// An upload was launched: until the host has waited for it, its source must not change.
void watch_upload(int stream, const at::Tensor& source);
// A download was launched: `values` appear in `to` once the host has waited. Until then it is 0xFF.
void deliver_later(int stream, const at::Tensor& to, const at::Tensor& values);
// Call this before a launch of `stream` reads pinned memory: downloads ordered before it appear.
void deliver_to(int stream, const at::Tensor& source);
// Writes the downloads that the host has waited for to their targets. Call it under the mutex, and
// destroy the result without the mutex.
std::vector<at::Tensor> deliver_arrived();

// ---- memory, random numbers, operators ----

c10::DeviceAllocator& allocator();  // allocator.cpp
at::Tensor new_tensor(c10::DeviceIndex device, at::IntArrayRef sizes, at::IntArrayRef strides,
                      at::ScalarType dtype);
// The CPU generator that one kernel draws from; `generator` may be undefined: the device's.
at::Generator next_generator(const at::Generator& generator, c10::DeviceIndex device);

// Each adds kernels to torch, for good.
void register_copies();           // copies.cpp
void register_boxed_operators();  // operators.cpp
void register_other_operators();  // other_operators.cpp

}  // namespace tanren::sim
