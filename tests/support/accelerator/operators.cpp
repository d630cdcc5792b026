// Every operator with a CPU kernel: one boxed kernel runs it on the device's memory.
#include "tests/support/accelerator/simulator.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace tanren::sim {

namespace {

using torch::jit::Stack;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}
bool is_view(const c10::Argument& returned) {
  return returned.alias_info() != nullptr && !returned.alias_info()->isWrite();
}
bool is_generator(const c10::Argument& argument) {
  const auto optional = argument.type()->cast<c10::OptionalType>();
  const auto type = optional ? optional->getElementType() : argument.type();
  return type->kind() == c10::TypeKind::GeneratorType;
}
// native_batch_norm's schema does not say that it writes its running statistics.
bool is_written_silently(std::string_view name, size_t argument) {
  return name == "aten::native_batch_norm" && (argument == 3 || argument == 4);
}
// These take indices of the host to the device.
bool takes_host_tensors(std::string_view name) {
  return name.starts_with("aten::index") || name.starts_with("aten::_index");
}

// `value` with each of its defined tensors changed.
template <class Change>
c10::IValue map_tensors(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    return value.toTensor().defined() ? c10::IValue(change(value.toTensor())) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(tensor.defined() ? change(tensor) : tensor);
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor && tensor->defined() ? std::optional(change(*tensor)) : tensor);
    }
    return list;
  }
  return value;
}
template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  map_tensors(value, [&](const at::Tensor& tensor) {
    visit(tensor);
    return tensor;
  });
}

// One call of an operator on a device.
class Call {
 public:
  Call(const c10::OperatorHandle& op, std::vector<c10::IValue> given)
      : op_(op),
        name_(op.schema().name()),
        given_(std::move(given)),
        device_(find_device()),
        stream_(current_stream(device_)) {}

  // Returns the operator's results.
  std::vector<c10::IValue> run() {
    const c10::DeviceGuard guard(c10::Device(kSim, device_));
    for (size_t i = 0; i < given_.size(); ++i) arguments_.push_back(translated(i));
    if (uploads_) wait_for({stream_}, &Counts::uploads);
    keep_written();
    try {
      launch(stream_, op_.schema().name().c_str(), uses_, [&] { compute(); });
      if (depends_on_data()) wait_for({stream_}, &Counts::downloads);
      for (const auto& [mine, inner] : outs_) {
        mine.resize_(inner.sizes());
        fill(mine, inner);
      }
      return results();
    } catch (const c10::OutOfMemoryError&) {  // a device finds its memory before it computes
      on_cpu([&] {
        for (const auto& [tensor, before] : kept_) inside(tensor).copy_(before);
      });
      throw;
    }
  }

 private:
  c10::DeviceIndex find_device() const {
    std::optional<c10::Device> found;
    for (const c10::IValue& value : given_) {
      each_tensor(value, [&](const at::Tensor& tensor) {
        if (!is_here(tensor)) return;
        TORCH_CHECK(!found || *found == tensor.device(), name_,
                    ": expected all tensors to be on the same device, but found at least two, ",
                    *found, " and ", tensor.device());
        found = tensor.device();
      });
    }
    for (const c10::IValue& value : given_) {
      if (!found && value.isDevice()) found = value.toDevice();
    }
    return index_of(found.value_or(c10::Device(kSim)));
  }

  // The i-th argument for the CPU's kernel. Notes what it uses.
  c10::IValue translated(size_t i) {
    const c10::Argument& argument = op_.schema().arguments()[i];
    const c10::IValue& value = given_[i];
    if (value.isDevice()) return c10::Device(c10::kCPU);
    if (is_generator(argument)) {
      return next_generator(value.isGenerator() ? value.toGenerator() : at::Generator(), device_);
    }
    const bool written = is_written(argument) || is_written_silently(name_, i);
    return map_tensors(value, [&](const at::Tensor& tensor) {
      if (!is_here(tensor)) {
        TORCH_CHECK(tensor.dim() == 0 || takes_host_tensors(name_), name_,
                    ": expected all tensors to be on the same device, but found at least two, sim:",
                    static_cast<int>(device_), " and ", tensor.device());
        uploads_ |= tensor.dim() > 0;
        return tensor;
      }
      uses_.push_back(use_of(tensor, written));
      if (written && tensor.numel() > 0) written_.push_back(tensor);
      if (written && argument.kwarg_only() && tensor.numel() == 0) {  // the kernel gives it a size
        outs_.emplace_back(tensor, at::empty({0}, tensor.dtype()));
        return outs_.back().second;
      }
      return inside(tensor);
    });
  }

  // Whether the host needs values to know the results' sizes. Indices tell them, masks do not.
  bool depends_on_data() const {
    if (op_.hasTag(at::Tag::data_dependent_output)) return true;
    if (!op_.hasTag(at::Tag::dynamic_output_shape)) return false;
    bool has_mask = name_ != "aten::index";
    for (const c10::IValue& value : arguments_) {
      if (!value.isOptionalTensorList()) continue;
      each_tensor(value, [&](const at::Tensor& tensor) {
        has_mask |= tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
      });
    }
    return has_mask;
  }

  // Copies the arguments that the kernel writes if the results may find no memory afterwards.
  void keep_written() {
    const auto& returns = op_.schema().returns();
    if (written_.empty() || std::all_of(returns.begin(), returns.end(), is_written)) return;
    on_cpu([&] {
      for (const at::Tensor& tensor : written_) kept_.emplace_back(tensor, inside(tensor).clone());
    });
  }

  // Sets results_ to the CPU's results. If a kernel throws although the shapes fit, the error
  // becomes the device's fault: the host gets it at its next wait, and the results are arbitrary.
  void compute() {
    results_ = arguments_;
    try {
      op_.callBoxed(&results_);
    } catch (const c10::Error& error) {
      if (!call_meta()) throw;
      const std::lock_guard lock(state().mutex);
      std::string& fault = state().devices[at_index(device_)].fault;
      if (fault.empty()) fault = error.what_without_backtrace();
    }
  }

  // Whether torch can infer the shapes of the results. Stores meta tensors with them in results_.
  bool call_meta() {
    results_.clear();
    for (const c10::IValue& value : arguments_) {
      if (value.isDevice()) {
        results_.emplace_back(c10::Device(c10::kMeta));
      } else {
        results_.push_back(map_tensors(value, [](const at::Tensor& tensor) {
          return at::empty_strided(tensor.sizes(), tensor.strides(),
                                   tensor.options().device(c10::kMeta));
        }));
      }
    }
    try {
      op_.callBoxed(&results_);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }

  std::vector<c10::IValue> results() {
    const auto& returns = op_.schema().returns();
    std::vector<c10::IValue> results;
    for (size_t i = 0; i < returns.size(); ++i) {
      results.push_back(is_written(returns[i]) ? argument_of(returns[i]) : moved(results_[i]));
    }
    return results;
  }
  // The argument that `returned` aliases.
  const c10::IValue& argument_of(const c10::Argument& returned) const {
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < given_.size(); ++i) {
      if (is_written(arguments[i]) && *arguments[i].alias_info() == *returned.alias_info()) {
        return given_[i];
      }
    }
    TORCH_CHECK(false, name_, " returns none of its arguments");
  }
  c10::IValue moved(const c10::IValue& value) {
    return map_tensors(value, [&](const at::Tensor& tensor) {
      TORCH_CHECK(tensor.layout() == at::kStrided, name_, " returns a tensor that is not dense");
      const at::Tensor dense =
          tensor.is_non_overlapping_and_dense() ? tensor : at::empty_like(tensor).copy_(tensor);
      at::Tensor made = new_tensor(device_, dense.sizes(), dense.strides(), dense.scalar_type());
      fill(made, dense);
      return made;
    });
  }
  // A result of the last launch.
  void fill(const at::Tensor& mine, const at::Tensor& values) const {
    if (mine.numel() == 0) return;
    judge(stream_, op_.schema().name().c_str(), use_of(mine, /*writes=*/true));
    if (!values.is_meta()) on_cpu([&] { inside(mine).copy_(values); });
  }

  const c10::OperatorHandle& op_;
  std::string_view name_;
  std::vector<c10::IValue> given_;
  c10::DeviceIndex device_;
  int stream_;
  std::vector<c10::IValue> arguments_;
  Stack results_;
  std::vector<Use> uses_;
  std::vector<at::Tensor> written_;
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;  // tensor, its old values
  std::vector<std::pair<at::Tensor, at::Tensor>> outs_;  // tensor, the CPU's
  bool uploads_ = false;
};

void call(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
  Call one(op, torch::jit::pop(*stack, op.schema().arguments().size()));
  for (c10::IValue& result : one.run()) stack->push_back(std::move(result));
}

}  // namespace

void register_boxed_operators() {
  static auto* const others = new torch::Library(torch::Library::IMPL, "_",
                                                 c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFromBoxedFunction<&call>());

  // An operator that torch could compose of others uses the CPU's own kernel if there is one, so
  // that the numbers are the same to the bit. Torch would prefer the composition to a fallback.
  static auto* const aten = new torch::Library(torch::Library::IMPL, "aten",
                                               c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  static auto* const own = new torch::Library(torch::Library::IMPL, "tanren",
                                              c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  own->impl("dropout_mask", torch::CppFunction::makeFromBoxedFunction<&call>());
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<std::string> names = {"convolution", "convolution_backward"};
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !op || !op->hasSchema()) continue;
    const bool composed =
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    const auto& returns = op->schema().returns();
    if (!op->hasKernelForDispatchKey(c10::DispatchKey::CPU) || !composed ||
        op->hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) ||
        std::any_of(returns.begin(), returns.end(), is_view)) {
      continue;
    }
    names.push_back(name.name.substr(std::string_view("aten::").size()) +
                    (name.overload_name.empty() ? "" : "." + name.overload_name));
  }
  for (const std::string& name : names) {
    aten->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&call>());
  }
}

}  // namespace tanren::sim
