#include "tanren/dry/dry_scope.h"

#include "tanren/base/memory_tag.h"
#include "tanren/base/operator_sizes.h"
#include "tanren/dry/dry_operators.h"
#include "tanren/dry/meta_operators.h"
#include "tanren/dry/real_scope.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/mman.h>

namespace tanren {

using torch::jit::Stack;

namespace {

constexpr auto kAutocast = c10::DispatchKey::AutocastCPU;
constexpr size_t kSmall = 64 << 10;

// Whether this thread is in a dry run.
thread_local bool dry = false;
thread_local std::map<uint16_t, int64_t> forward_multiply_adds;
thread_local OperatorSizes sizes;

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
    if (!dry) return {nullptr, nullptr, [](void*) {}, c10::Device(c10::kMeta)};
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

// The name without "aten::" of a matrix product, convolution or attention; empty: another
// operator's.
std::string_view contraction(const std::string& full) {
  constexpr std::array<std::string_view, 7> kNames = {
      "mm",
      "bmm",
      "addmm",
      "baddbmm",
      "addbmm",
      "convolution",
      "_scaled_dot_product_flash_attention_for_cpu"};
  if (full.rfind("aten::", 0) != 0) return "";
  const std::string_view name = std::string_view(full).substr(6);
  return std::find(kNames.begin(), kNames.end(), name) == kNames.end() ? "" : name;
}

// A view is no work, however large the tensor. A tensor changed in place was counted when it was
// made.
bool shares_memory(const c10::OperatorHandle& op) {
  const auto& results = op.schema().returns();
  return !results.empty() && results[0].alias_info() != nullptr;
}

// False for operators that make a tensor from nothing, such as the flat buffer of all gradients.
bool takes_tensors(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
           argument.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

// For an operator of a forward that has run; its results are on `stack`.
void note_elements(const c10::OperatorHandle& op, const Stack& stack) {
  if (shares_memory(op)) return;
  for (const auto& value : torch::jit::last(stack, op.schema().returns().size())) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    sizes.elements = std::max(sizes.elements, value.toTensor().numel());
  }
}

// The fallback for the operators that the program calls, before autocast and autograd.
void called(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const auto& name = op.operator_name().name;
  if (name == "aten::empty" || name == "aten::empty_strided") {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() != "device") continue;
      torch::jit::peek(*stack, i, arguments.size()) = c10::Device(c10::kMeta);
    }
  }
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kDryKey);
  // CPU tensors bring autocast's key. Dry tensors have another backend's keys, so it is added here.
  if (keys.has_backend(c10::BackendComponent::MetaBit) &&
      !c10::impl::tls_is_dispatch_key_excluded(kAutocast) &&
      op.hasKernelForDispatchKey(kAutocast)) {
    keys = keys.add(kAutocast);
  }
  const size_t num_arguments = op.schema().arguments().size();
  std::vector<c10::IValue> arguments;
  const bool forward = at::GradMode::is_enabled();
  const std::string_view known = forward ? contraction(name) : "";
  if (!known.empty()) {
    const auto last = torch::jit::last(*stack, num_arguments);
    arguments.assign(last.begin(), last.end());
  }
  op.redispatchBoxed(keys, stack);
  if (forward && takes_tensors(op)) note_elements(op, *stack);
  if (known.empty()) return;
  const auto found = meta::multiply_adds(known, arguments, {stack->back().toTensor()});
  const int64_t count = found.value_or(0);
  if (known.front() != '_') sizes.multiply_adds = std::max(sizes.multiply_adds, count);
  forward_multiply_adds[memory_tag().block] += count;
}

// The implementation of the operators for which torch has no shape function.
void computed(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  if (run_dry_operator(op, *stack)) return;
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

// The operators that have a CPU kernel and no shape function in torch, and dry_operators().
const std::vector<std::string>& operators_without_shapes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found(dry_operators().begin(), dry_operators().end());
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0) continue;
      const auto op = dispatcher.findOp(name);
      if (!op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
      if (op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) continue;
      found.push_back(name.name + (name.overload_name.empty() ? "" : "." + name.overload_name));
    }
    return found;
  }();
  return names;
}

class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

}  // namespace

struct DryScope::Impl {
  std::vector<torch::Library> libraries;
};

DryScope::DryScope() : impl_(std::make_unique<Impl>()) {
  install_allocator();
  auto& libraries = impl_->libraries;
  libraries.emplace_back(torch::Library::IMPL, "_", kDryKey, __FILE__, __LINE__);
  libraries.back().fallback(torch::CppFunction::makeFromBoxedFunction<&called>());
  forward_multiply_adds.clear();
  libraries.emplace_back(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  // torch warns about each of its own shape functions that is replaced.
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard quiet(&silence);
  for (const auto& name : operators_without_shapes()) {
    libraries.back().impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&computed>());
  }
  dry = true;
  c10::impl::tls_set_dispatch_key_included(kDryKey, true);
}

DryScope::~DryScope() {
  c10::impl::tls_set_dispatch_key_included(kDryKey, false);
  dry = false;
}

const std::map<uint16_t, int64_t>& DryScope::multiply_adds() const { return forward_multiply_adds; }

void note_dry_forward(int64_t multiply_adds) {
  if (dry) forward_multiply_adds[memory_tag().block] += multiply_adds;
}

OperatorSizes dry_operator_sizes() { return sizes; }
void forget_dry_operator_sizes() { sizes = {}; }

}  // namespace tanren
