#include "tanren/dry/meta_scope.h"

#include "tanren/base/text.h"
#include "tanren/dry/meta_operators.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

#include <map>
#include <utility>

namespace tanren {
namespace {

using torch::jit::Stack;

// A dispatch key that no backend of ours uses. It is above autograd, so its fallback sees operators
// as the program calls them, and then the operators that a composite operator calls.
constexpr auto kKey = c10::DispatchKey::DeferredInit;

std::vector<at::Tensor> tensors_in(meta::Arguments values) {
  std::vector<at::Tensor> tensors;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) tensors.push_back(tensor);
  };
  for (const auto& value : values) {
    if (value.isTensor()) add(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    }
    if (value.isOptionalTensorList()) {
      const auto list = value.toOptionalTensorList();
      for (size_t i = 0; i < list.size(); ++i) {
        add(std::optional<at::Tensor>(list.get(i)).value_or(at::Tensor()));
      }
    }
  }
  return tensors;
}

void push_all(Stack& stack, const std::vector<c10::IValue>& values) {
  stack.insert(stack.end(), values.begin(), values.end());
}

// Every tensor of `values` replaced by change(tensor).
template <class F>
void replace_tensors(std::vector<c10::IValue>& values, F&& change) {
  for (auto& value : values) {
    if (value.isTensor() && value.toTensor().defined()) {
      value = change(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list = value.toTensorList().copy();
      for (size_t i = 0; i < list.size(); ++i) list.set(i, change(at::Tensor(list.get(i))));
      value = std::move(list);
    } else if (value.isOptionalTensorList()) {
      auto list = value.toOptionalTensorList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        const std::optional<at::Tensor> item = list.get(i);
        if (item && item->defined()) list.set(i, change(*item));
      }
      value = std::move(list);
    }
  }
}

using Originals = std::map<const at::TensorImpl*, at::Tensor>;

}  // namespace

at::Tensor meta_tensor(at::IntArrayRef sizes, at::ScalarType dtype) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
  return at::empty(sizes, at::TensorOptions(dtype).device(at::kMeta));
}

struct MetaScope::Impl {
  // The fallback of kKey; the dispatcher owns it.
  struct Fallback final : c10::OperatorKernel {
    explicit Fallback(Impl* scope) : impl(scope) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
      impl->called(op, keys, *stack);
    }
    Impl* impl;
  };

  explicit Impl(Observer observer_of_calls)
      : observer(std::move(observer_of_calls)),
        library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__) {
    library.fallback(torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Fallback>(this)));
  }

  void called(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack& stack);
  void execute(const c10::OperatorHandle& op, std::string_view name, c10::DispatchKeySet keys,
               Stack& stack);
  std::vector<c10::IValue> execute_libtorch(const c10::OperatorHandle& op,
                                            const std::vector<c10::IValue>& arguments,
                                            c10::DispatchKeySet keys, Stack& stack);
  void run_on_zeros(const c10::OperatorHandle& op, std::vector<c10::IValue> arguments,
                    Stack& stack);
  at::Tensor without_memory(const at::Tensor& tensor);

  Observer observer;
  torch::Library library;
  bool inside = false;        // an operator is running
  int64_t multiply_adds = 0;  // of the outermost operator
  std::map<const at::TensorImpl*, std::pair<at::Tensor, at::Tensor>> twins;  // real, without memory
};

void MetaScope::Impl::called(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                             Stack& stack) {
  const std::string& full = op.operator_name().name;  // "aten::conv2d"
  const std::string name = full.substr(full.rfind(':') + 1);
  // The rules for torch's operators do not apply to other operators with the same names.
  const std::string_view known = full.rfind("aten::", 0) == 0 ? name : std::string_view();
  if (inside) {
    execute(op, known, keys, stack);
    return;
  }
  OperatorCall call{name, tensors_in(torch::jit::last(stack, op.schema().arguments().size())), {}};
  multiply_adds = 0;
  inside = true;
  const auto leave = c10::make_scope_exit([this] { inside = false; });
  try {
    execute(op, known, keys, stack);
  } catch (const meta::Misfit& misfit) {
    throw OperatorError(std::move(call), misfit.expected, misfit.what());
  } catch (const c10::Error& error) {
    throw OperatorError(std::move(call), "", first_line(error.what_without_backtrace()));
  }
  call.outputs = tensors_in(torch::jit::last(stack, op.schema().returns().size()));
  call.multiply_adds = multiply_adds;
  if (observer) observer(call);
}

// The stand-in of a real tensor for an operator on tensors without memory; the same one each time.
at::Tensor MetaScope::Impl::without_memory(const at::Tensor& tensor) {
  if (tensor.is_meta()) return tensor;
  auto& twin = twins[tensor.unsafeGetTensorImpl()];
  if (!twin.second.defined() || twin.second.sizes() != tensor.sizes()) {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
    twin = {tensor, at::empty_strided(tensor.sizes(), tensor.strides(),
                                      tensor.options().device(at::kMeta))};
  }
  return twin.second;
}

namespace {

// Whether the operator makes a tensor from nothing that is so large that it gets no memory.
bool makes_large_tensor(const c10::OperatorHandle& op, std::string_view name,
                        const std::vector<c10::IValue>& arguments) {
  if (name != "empty" && name != "empty_strided") return false;
  const auto& schema = op.schema().arguments();
  int64_t numel = 1;
  int64_t element = 4;
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == "size") numel = c10::multiply_integers(arguments[i].toIntVector());
    if (schema[i].name() == "dtype" && !arguments[i].isNone()) {
      element = static_cast<int64_t>(c10::elementSize(arguments[i].toScalarType()));
    }
  }
  return numel * element > MetaScope::kRealBytes;
}

void set_device(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments,
                at::Device device, bool also_unset) {
  const auto& schema = op.schema().arguments();
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == "device" && (also_unset || !arguments[i].isNone())) {
      arguments[i] = device;
    }
  }
}

}  // namespace

void MetaScope::Impl::execute(const c10::OperatorHandle& op, std::string_view name,
                              c10::DispatchKeySet keys, Stack& stack) {
  std::vector<c10::IValue> arguments = torch::jit::pop(stack, op.schema().arguments().size());
  const std::vector<at::Tensor> inputs = tensors_in(arguments);
  const bool on_meta = std::any_of(inputs.begin(), inputs.end(),
                                   [](const auto& tensor) { return tensor.is_meta(); });
  Originals originals;
  if (on_meta) {
    replace_tensors(arguments, [&](const at::Tensor& tensor) {
      at::Tensor twin = without_memory(tensor);
      originals[twin.unsafeGetTensorImpl()] = tensor;
      return twin;
    });
    set_device(op, arguments, at::kMeta, /*also_unset=*/false);
    keys = keys.remove_backend(c10::BackendComponent::CPUBit);
    meta::check(name, arguments);
    if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape)) {
      throw meta::Misfit("", std::string(name) + " needs values, and a dry run has only shapes");
    }
  } else if (makes_large_tensor(op, name, arguments)) {
    set_device(op, arguments, at::kMeta, /*also_unset=*/true);
  }

  const int64_t before = multiply_adds;
  std::vector<c10::IValue> returned;
  if (auto known = on_meta ? meta::results(name, arguments) : std::nullopt) {
    for (auto& tensor : *known) returned.emplace_back(std::move(tensor));
  } else {
    returned = execute_libtorch(op, arguments, keys, stack);
  }
  if (const auto results = tensors_in(returned); !results.empty()) {
    const auto own = meta::multiply_adds(name, arguments, results);
    if (own) multiply_adds = before + *own;  // instead of those of the operators that it called
  }
  // An in-place operator returns the tensor that it was given.
  replace_tensors(returned, [&](const at::Tensor& tensor) {
    const auto original = originals.find(tensor.unsafeGetTensorImpl());
    return original == originals.end() ? tensor : original->second;
  });
  push_all(stack, returned);
}

std::vector<c10::IValue> MetaScope::Impl::execute_libtorch(
    const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
    c10::DispatchKeySet keys, Stack& stack) {
  const size_t floor = stack.size();
  push_all(stack, arguments);
  try {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), &stack);
  } catch (const c10::NotImplementedError&) {
    if (!keys.has_backend(c10::BackendComponent::MetaBit)) throw;
    stack.resize(floor);
    run_on_zeros(op, arguments, stack);
  }
  return torch::jit::pop(stack, op.schema().returns().size());
}

// Finds the result shapes of an operator without a meta kernel by running it on zeros.
void MetaScope::Impl::run_on_zeros(const c10::OperatorHandle& op,
                                   std::vector<c10::IValue> arguments, Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard unseen(kKey);
  Originals originals;
  replace_tensors(arguments, [&](const at::Tensor& tensor) {
    at::Tensor zeros = at::zeros(tensor.sizes(), tensor.options().device(at::kCPU));
    originals.emplace(zeros.unsafeGetTensorImpl(), tensor);
    return zeros;
  });
  set_device(op, arguments, at::kCPU, /*also_unset=*/false);
  const auto keep = arguments;  // so that no address is used twice
  push_all(stack, arguments);
  op.callBoxed(stack);
  auto returned = torch::jit::pop(stack, op.schema().returns().size());
  replace_tensors(returned, [&](const at::Tensor& tensor) {
    const auto original = originals.find(tensor.unsafeGetTensorImpl());
    return original != originals.end() ? original->second
                                       : meta_tensor(tensor.sizes(), tensor.scalar_type());
  });
  push_all(stack, returned);
}

MetaScope::MetaScope(Observer observer) : impl_(std::make_unique<Impl>(std::move(observer))) {
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

MetaScope::~MetaScope() { c10::impl::tls_set_dispatch_key_included(kKey, false); }

}  // namespace tanren
