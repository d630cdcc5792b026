#include "tests/support/accelerator/simulator.h"

#include <fmt/format.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <csignal>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace tanren::sim {

namespace {

int number_of(const c10::Stream& stream) {
  return stream_at(stream.device_index(), static_cast<int>(stream.id()));
}
c10::Stream as_stream(int number) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kSim, device_of(number)), number % kStreams);
}

struct Event {
  c10::DeviceIndex device = 0;
  Clock clock;
};
Event& event_at(void* event) { return *static_cast<Event*>(event); }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSim; }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(state().options.devices);
  }
  c10::Device getDevice() const override { return {kSim, current_device()}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kSim, exchange_device(device.index())};
  }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    exchange_device(device.index());
  }

  c10::Stream getStream(c10::Device device) const override {
    return as_stream(current_stream(index_of(device)));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return as_stream(stream_at(index_of(device), 0));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*priority*/) const override {
    static std::atomic<int> next = 0;
    return as_stream(stream_at(index_of(device), 1 + next++ % kPoolStreams));
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return getStreamFromGlobalPool(device, false);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return as_stream(exchange_stream(number_of(stream)));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator().recordStream(data, stream);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    if (*event == nullptr) *event = new Event;
    event_at(*event) = {stream.device_index(), sim::record(number_of(stream))};
  }
  void block(void* event, const c10::Stream& stream) const override {
    sim::block(number_of(stream), event_at(event).clock);
  }
  // Every launch has run, so every event has happened.
  bool queryEvent(void* event) const override {
    wait_for(event_at(event).clock, event_at(event).device, nullptr);
    return true;
  }
  void synchronizeEvent(void* event) const override {
    wait_for(event_at(event).clock, event_at(event).device, &Counts::synchronisations);
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    wait_for(sim::record(number_of(stream)), stream.device_index(), nullptr);
    return true;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_for({number_of(stream)}, &Counts::synchronisations);
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    wait_for(streams_of(device), &Counts::synchronisations);
  }
  double elapsedTime(void* /*from*/, void* /*to*/, c10::DeviceIndex /*device*/) const override {
    return 0;
  }
};

// A seed and the number of kernels that have drawn. State: both, 16 bytes.
struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex device)
      : GeneratorImpl({kSim, device}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == 2 * sizeof(uint64_t), "a state of sim's generator has 16 bytes");
    const auto* const bytes = static_cast<const char*>(state.data());
    std::memcpy(&seed_, bytes, sizeof(seed_));
    std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const at::Tensor state = at::empty({2 * sizeof(uint64_t)}, at::kByte);
    auto* const bytes = static_cast<char*>(state.mutable_data_ptr());
    std::memcpy(bytes, &seed_, sizeof(seed_));
    std::memcpy(bytes + sizeof(seed_), &offset_, sizeof(offset_));
    return state.getIntrusivePtr();
  }
  Generator* clone_impl() const override {
    auto* const copy = new Generator(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

  // The draws of one kernel.
  at::Generator next() {
    constexpr uint64_t kSpread = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
    return at::make_generator<at::CPUGeneratorImpl>(seed_ + ++offset_ * kSpread);
  }

 private:
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* const all = [] {
    auto* const made = new std::vector<at::Generator>;
    for (int i = 0; i < state().options.devices; ++i) {
      made->push_back(at::make_generator<Generator>(static_cast<c10::DeviceIndex>(i)));
    }
    return made;
  }();
  return all->at(at_index(device < 0 ? current_device() : device));
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(state().options.devices);
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchange_device(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<Generator>(device < 0 ? current_device() : device);
  }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  at::Device getDeviceFromPtr(void* data) const override {
    const OneDevice* const holder = holder_of(data);
    TORCH_CHECK(holder != nullptr, "no simulated device has this address");
    return {kSim, holder->index};
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    c10::DataPtr larger = allocator().allocate(bytes);
    const size_t kept = std::min(bytes, storage.nbytes());
    if (kept > 0) allocator().copy_data(larger.get(), storage.data(), kept);
    storage.set_data_ptr_noswap(std::move(larger));
    storage.set_nbytes(bytes);
  }
};

// The host touched device memory: names the block, then ends the process as any such fault does.
struct sigaction before_us;
void on_touch(int signal, siginfo_t* info, void* /*context*/) {
  if (OneDevice* const holder = holder_of(info->si_addr); holder != nullptr) {
    const size_t offset = holder->memory.offset_of(info->si_addr);
    const Block* const block = holder->memory.block_at(offset);
    const std::string line =
        block == nullptr
            ? fmt::format("sim: the host touched freed memory of sim:{}\n", holder->index)
            : fmt::format(
                  "sim: the host touched memory of sim:{}: byte {} of a block of {} bytes\n",
                  holder->index, offset - block->begin, block->size);
    if (::write(STDERR_FILENO, line.data(), line.size()) < 0) ::_exit(128 + signal);
  }
  ::sigaction(SIGSEGV, &before_us, nullptr);  // the access repeats and ends the process
}

}  // namespace

at::Generator next_generator(const at::Generator& generator, c10::DeviceIndex device) {
  at::Generator drawn = generator.defined() ? generator : default_generator(device);
  const std::lock_guard lock(drawn.mutex());
  return static_cast<Generator*>(drawn.unsafeGetGeneratorImpl())->next();
}

void install(const Options& options) {
  make_state(options);
  c10::register_privateuse1_backend("sim");
  c10::impl::registerDeviceGuard(kSim, new Guard);
  c10::SetAllocator(kSim, &allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  struct sigaction action {};
  action.sa_sigaction = &on_touch;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, &before_us);
  register_copies();
  register_other_operators();
  register_boxed_operators();  // the rest
}

}  // namespace tanren::sim
