#include "tanren/dry/dry_scope.h"

#include "tanren/dry/device_autocast.h"
#include "tanren/dry/dry_observer.h"
#include "tanren/dry/dry_operators.h"
#include "tanren/dry/real_scope.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <sys/mman.h>

namespace tanren {

namespace {

using torch::jit::Stack;

constexpr auto kAutocast = c10::DispatchKey::AutocastCPU;
constexpr size_t kSmall = 64 << 10;

// This thread's dry run.
struct DryState {
  bool dry = false;
  DryObserver* observer = nullptr;
  int64_t real_bytes = 0;
  bool within_dry = false;  // an operator on tensors without memory is running
  c10::DeviceType device = c10::kCPU;
};
thread_local DryState state;
std::atomic<bool> scope_open = false;

// The memory of one tensor: addresses that take no memory until something is written there.
class Block {
 public:
  explicit Block(size_t bytes) : bytes_(bytes) {
    if (bytes_ >= kSmall) {
      void* found = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      data_ = found == MAP_FAILED ? nullptr : found;
    } else if (bytes_ > 0) {
      data_ = std::calloc(1, bytes_);
    }
    report(static_cast<int64_t>(bytes_));
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    report(-static_cast<int64_t>(bytes_));
    if (bytes_ < kSmall) {
      std::free(data_);
    } else if (data_ != nullptr) {
      ::munmap(data_, bytes_);
    }
  }
  void* data() const { return data_; }

 private:
  // Reports to TraceScope, as allocators do.
  void report(int64_t bytes) {
    if (bytes != 0) c10::reportMemoryUsageToProfiler(this, bytes, 0, 0, c10::Device(c10::kCPU));
  }

  size_t bytes_;
  void* data_ = nullptr;
};

// torch's allocator of the meta device. In a dry run it makes Blocks.
class DryAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (!state.dry) return {nullptr, nullptr, [](void*) {}, c10::Device(c10::kMeta)};
    auto block = std::make_unique<Block>(bytes);
    void* data = block->data();
    return {data, block.release(), [](void* context) { delete static_cast<Block*>(context); },
            c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
};

void install_allocator() {
  static DryAllocator allocator;
  static const bool installed = [] {
    c10::SetAllocator(c10::kMeta, &allocator, /*priority=*/10);
    return true;
  }();
  (void)installed;
}

// Whether at::empty or at::empty_strided, with its arguments on `stack`, makes a real tensor.
bool stays_real(const c10::OperatorHandle& op, const Stack& stack) {
  if (state.real_bytes == 0 || state.within_dry) return false;
  const auto& schema = op.schema().arguments();
  int64_t numel = 1, element = sizeof(float);
  for (size_t i = 0; i < schema.size(); ++i) {
    const c10::IValue& value = torch::jit::peek(stack, i, schema.size());
    if (schema[i].name() == "size") numel = c10::multiply_integers(value.toIntVector());
    if (schema[i].name() == "dtype" && !value.isNone()) {
      element = static_cast<int64_t>(c10::elementSize(value.toScalarType()));
    }
  }
  return numel * element <= state.real_bytes;
}

// Whether it is an operator of another library that has a CPU kernel and no shape function.
bool lacks_shapes(const c10::OperatorHandle& op) {
  return !op.operator_name().name.starts_with("aten::") &&
         op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::Meta) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd);
}

// The fallback for the operators that the program calls, before autocast and autograd, and for
// those that they call.
void called(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto& name = op.operator_name().name;
  if ((name == "aten::empty" || name == "aten::empty_strided") && !stays_real(op, *stack)) {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() != "device") continue;
      torch::jit::peek(*stack, i, arguments.size()) = c10::Device(c10::kMeta);
    }
  }
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kDryKey);
  const bool on_dry = keys.has_backend(c10::BackendComponent::MetaBit);
  // CPU tensors bring autocast's key. Dry tensors have another backend's keys, so it is added here.
  const auto casts = state.device == c10::kCPU ? kAutocast : kDeviceAutocast;
  if (on_dry && !c10::impl::tls_is_dispatch_key_excluded(kAutocast) &&
      op.hasKernelForDispatchKey(casts)) {
    keys = keys.add(casts);
  }
  const bool outer = std::exchange(state.within_dry, state.within_dry || on_dry);
  const auto leave = c10::make_scope_exit([outer] { state.within_dry = outer; });
  // This call skips the operator's autograd, if it has any. It may do so only while autograd would
  // record nothing.
  if (on_dry && !at::GradMode::is_enabled() && lacks_shapes(op)) {
    keys = c10::DispatchKeySet(c10::DispatchKey::CPU);
  }
  const auto run = [&] { op.redispatchBoxed(keys, stack); };
  if (state.observer == nullptr) return run();
  state.observer->around({op, *stack, on_dry}, run);
}

// torch's own kernels on its meta device for the operators that `computed` replaces.
using Replaced = std::unordered_map<c10::OperatorName, c10::SafeKernelFunction>;
Replaced& replaced() {
  static auto* const kernels = new Replaced;
  return *kernels;
}

// Whether the operator has an argument that a dry run made: such a tensor is on torch's meta device
// and reports the CPU. A kernel that runs on zeros may pass one to other threads.
bool takes_dry_tensor(const c10::OperatorHandle& op, const Stack& stack) {
  const size_t count = op.schema().arguments().size();
  return std::any_of(
      stack.end() - static_cast<ptrdiff_t>(count), stack.end(), [](const c10::IValue& value) {
        return value.isTensor() && is_dry(value.toTensor()) && value.toTensor().device().is_cpu();
      });
}

// Computes, on the meta device in a dry run, the operators for which torch has no shape function.
void computed(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  if (!state.dry && !takes_dry_tensor(op, *stack)) {
    const auto own = replaced().find(op.operator_name());
    TORCH_CHECK_NOT_IMPLEMENTED(own != replaced().end(), op.operator_name(),
                                " is not implemented on the meta device");
    return own->second.callBoxed(op, keys, stack);
  }
  if (run_dry_operator(op, *stack)) return;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// The operators that have a CPU kernel and no shape function in torch, and dry_operators().
std::unordered_set<c10::OperatorName> operators_without_shapes() {
  std::unordered_set<c10::OperatorName> found;
  for (const std::string_view name : dry_operators()) {
    const size_t dot = std::min(name.find('.'), name.size());
    found.emplace("aten::" + std::string(name.substr(0, dot)),
                  std::string(name.substr(std::min(dot + 1, name.size()))));
  }
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    if (op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) continue;
    found.insert(name);
  }
  return found;
}

class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// Registers with torch what operators do in a dry run: once, since it takes 15 ms. The fallback
// runs only under kDryKey, which a DryScope turns on.
void register_operators() {
  static const bool registered = [] {
    // torch warns about each of its own shape functions that is replaced.
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    const auto names = operators_without_shapes();
    for (const auto& name : names) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (op && op->hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
        replaced().emplace(name, op->getComputedKernelForDispatchKey(c10::DispatchKey::Meta));
      }
    }
    auto* const meta = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta,
                                          __FILE__, __LINE__);
    for (const auto& name : names) {
      meta->impl(c10::toString(name).c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&computed>());
    }
    auto* const others = new torch::Library(torch::Library::IMPL, "_", kDryKey, __FILE__, __LINE__);
    others->fallback(torch::CppFunction::makeFromBoxedFunction<&called>());
    return true;
  }();
  (void)registered;
}

}  // namespace

DryScope::DryScope(DryObserver* observer, int64_t real_bytes)
    : flash_before_(at::globalContext().userEnabledFlashSDP()) {
  install_allocator();
  register_operators();
  TORCH_CHECK(!scope_open.exchange(true), "a dry run inside another one");
  state = {.dry = true, .observer = observer, .real_bytes = real_bytes};
  c10::impl::tls_set_dispatch_key_included(kDryKey, true);
}

DryScope::DryScope(c10::DeviceType device, DryObserver* observer) : DryScope(observer) {
  state.device = device;
  if (device == c10::kCPU) return;
  register_device_autocast();
  // Among torch's fused attention kernels only CUDA's keeps the same tensors as the CPU's.
  if (device != c10::kCUDA) at::globalContext().setSDPUseFlash(false);
}

DryScope::~DryScope() {
  c10::impl::tls_set_dispatch_key_included(kDryKey, false);
  at::globalContext().setSDPUseFlash(flash_before_);
  state = {};
  scope_open = false;
}

c10::DeviceType kernels_of(const at::Tensor& tensor) {
  return state.device != c10::kCPU && is_dry(tensor) ? state.device : tensor.device().type();
}

void note_dry_forward(int64_t multiply_adds, int64_t gradients) {
  if (state.observer != nullptr) state.observer->forward_noted(multiply_adds, gradients);
}

}  // namespace tanren
