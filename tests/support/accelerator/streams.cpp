#include "tests/support/accelerator/simulator.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>
#include <utility>

namespace tanren::sim {

namespace {

State* the_state = nullptr;  // for good: tensors may outlive the statics

thread_local c10::DeviceIndex device_now = 0;
thread_local std::array<int, 64> stream_now{};  // by device, its index there

// The first function on `stack` that belongs to tanren but not to the simulator.
std::string caller_on(const std::vector<void*>& stack) {
  for (void* const frame : stack) {
    Dl_info info{};
    if (::dladdr(frame, &info) == 0 || info.dli_sname == nullptr) continue;
    int status = 0;
    char* const plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    const std::string name = plain != nullptr ? plain : info.dli_sname;
    std::free(plain);
    if (name.find("tanren::") == std::string::npos) continue;
    if (name.find("tanren::sim::") != std::string::npos) continue;
    return name.substr(0, name.find('('));
  }
  return "outside tanren";
}

void note_wait(Counter counter) {
  std::vector<void*> stack(48);
  stack.resize(at_index(::backtrace(stack.data(), static_cast<int>(stack.size()))));
  const std::lock_guard lock(state().mutex);
  ++(state().counts.*counter);
  ++state().waits[std::move(stack)];
}

// Records that the host has waited for the launches in `clock`. Throws the device's fault.
void see(const Clock& clock, c10::DeviceIndex device) {
  std::vector<at::Tensor> arrived;
  std::string fault;
  {
    const std::lock_guard lock(state().mutex);
    join(state().host, clock);
    arrived = deliver_arrived();
    fault = state().devices[at_index(device)].fault;
  }
  TORCH_CHECK(fault.empty(),
              "SIM error: device-side assert triggered on sim:", static_cast<int>(device), ": ",
              fault);
}

// Under the mutex.
void judge_locked(int stream, const char* operation, const Use& use) {
  OneDevice* const holder = use.bytes == 0 ? nullptr : holder_of(use.address);
  if (holder == nullptr) return;
  const Clock& clock = state().clocks[at_index(stream)];
  const size_t begin = holder->memory.offset_of(use.address);
  const Access now{stream, clock[at_index(stream)], operation};
  holder->shadow.add(
      {begin, begin + use.bytes}, use.writes, now, clock, [&](const Access& earlier, bool wrote) {
        violate(fmt::format("{} on {} {} what {} on {} {}, and nothing orders them", operation,
                            name_of(stream), use.writes ? "writes" : "reads", earlier.operation,
                            name_of(earlier.stream), wrote ? "wrote" : "reads"));
      });
}

}  // namespace

State& state() { return *the_state; }
bool installed() { return the_state != nullptr; }

void make_state(const Options& options) {
  TORCH_CHECK(the_state == nullptr, "the simulated accelerator is there already");
  const size_t streams = at_index(options.devices * kStreams);
  auto made = std::make_unique<State>();
  made->options = options;
  made->running.resize(streams);
  made->clocks.assign(streams, Clock(streams, 0));
  made->host.assign(streams, 0);
  for (int i = 0; i < options.devices; ++i) {
    made->devices.emplace_back(static_cast<c10::DeviceIndex>(i), options.bytes);
  }
  the_state = made.release();
}

c10::DeviceIndex current_device() { return device_now; }
c10::DeviceIndex exchange_device(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < state().options.devices,
              "there is no device sim:", static_cast<int>(device), "; there are ",
              state().options.devices);
  return std::exchange(device_now, device);
}
c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : device_now;
}
int current_stream(c10::DeviceIndex device) {
  return stream_at(device, stream_now[at_index(device)]);
}
int exchange_stream(int stream) {
  const auto device = device_of(stream);
  return stream_at(device, std::exchange(stream_now[at_index(device)], stream % kStreams));
}
std::vector<int> streams_of(c10::DeviceIndex device) {
  std::vector<int> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(stream_at(device, i));
  return streams;
}
std::string name_of(int stream) {
  return fmt::format("stream {} of sim:{}", stream % kStreams, stream / kStreams);
}

Clock record(int stream) {
  const std::lock_guard ended(state().running[at_index(stream)]);
  const std::lock_guard lock(state().mutex);
  Clock& clock = state().clocks[at_index(stream)];
  join(clock, state().host);
  return clock;
}

void block(int stream, const Clock& clock) {
  const std::lock_guard lock(state().mutex);
  join(state().clocks[at_index(stream)], clock);
}

void order(int before, int after) {
  if (before != after) block(after, record(before));
}

size_t use_bytes(const at::Tensor& tensor) {
  return at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
}

Use use_of(const at::Tensor& tensor, bool writes) {
  if (!is_here(tensor) || tensor.numel() == 0) return {};
  return {tensor.const_data_ptr(), use_bytes(tensor), writes};
}

void launch(int stream, const char* operation, const std::vector<Use>& uses,
            const std::function<void()>& kernel) {
  const std::lock_guard runs(state().running[at_index(stream)]);
  {
    const std::lock_guard lock(state().mutex);
    ++state().counts.kernels;
    Clock& clock = state().clocks[at_index(stream)];
    join(clock, state().host);
    ++clock[at_index(stream)];
    // Reads are judged first, so that a kernel may read and write the same bytes.
    for (const Use& use : uses) {
      if (!use.writes) judge_locked(stream, operation, use);
    }
    for (const Use& use : uses) {
      if (use.writes) judge_locked(stream, operation, use);
    }
  }
  on_cpu(kernel);
}

void on_cpu(const std::function<void()>& kernel) {
  c10::impl::PODLocalDispatchKeySet keys{};
  keys.set_included(c10::DispatchKeySet(c10::DispatchKey::BackendSelect));
  keys.set_excluded(c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                    c10::autocast_dispatch_keyset);
  const c10::impl::ForceDispatchKeyGuard plain{c10::impl::LocalDispatchKeySet(keys)};
  const at::DisableRecordFunctionGuard unseen;
  kernel();
}

void judge(int stream, const char* operation, const Use& use) {
  const std::lock_guard lock(state().mutex);
  judge_locked(stream, operation, use);
}

void violate(std::string what) {
  if (state().violations.size() < 20) state().violations.push_back(std::move(what));
}

OneDevice* holder_of(const void* address) {
  for (OneDevice& device : state().devices) {
    if (device.memory.holds(address)) return &device;
  }
  return nullptr;
}

void* inside(const void* address) {
  OneDevice* const holder = holder_of(address);
  if (holder == nullptr) return const_cast<void*>(address);
  return holder->memory.inside(holder->memory.offset_of(address));
}

at::Tensor inside(const at::Tensor& tensor) {
  const auto options = at::TensorOptions(tensor.dtype());
  if (tensor.numel() == 0) return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  return at::from_blob(inside(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(), options);
}

void wait_for(const std::vector<int>& streams, Counter counter) {
  note_wait(counter);
  for (const int stream : streams) see(record(stream), device_of(stream));
}

void wait_for(const Clock& clock, c10::DeviceIndex device, Counter counter) {
  if (counter != nullptr) note_wait(counter);
  see(clock, device);
}

Counts counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

std::map<std::string, int64_t> take_waits() {
  std::map<std::vector<void*>, int64_t> stacks;
  {
    const std::lock_guard lock(state().mutex);
    stacks.swap(state().waits);
  }
  std::map<std::string, int64_t> waits;
  for (const auto& [stack, count] : stacks) waits[caller_on(stack)] += count;
  return waits;
}

std::vector<std::string> take_violations() {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().violations, {});
}

std::string take_fault(int device) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().devices.at(at_index(device)).fault, {});
}

}  // namespace tanren::sim
