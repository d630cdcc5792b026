#include "tanren/quantize/fold.h"

#include "tanren/base/value_tensors.h"
#include "tanren/dry/dry_batch.h"
#include "tanren/dry/dry_observer.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/quantize/evaluation_forward.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace tanren {
namespace {

// Bytes. Smaller tensors hold values in a dry run, because models compute constants with tensors.
constexpr int64_t kRealConstants = 64 << 10;

struct NormAfter {
  at::Tensor weight, bias, mean, variance;  // weight, bias: undefined if it has none
  double eps = 0;
};

struct FoldedConvolution {
  at::Tensor weight, bias;  // bias: undefined if it has none
  at::Tensor output;        // kept alive, so that no other tensor gets its address
  std::optional<NormAfter> norm;
  bool is_read_otherwise = false;
};

// Finds a module's tensors among the tensors that operators read.
class ModuleTensors {
 public:
  explicit ModuleTensors(const torch::nn::Module& module) {
    for (const auto& item : module.named_parameters()) add(item.key(), item.value());
    for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  }

  // Counts a read of the tensor that `read` is, or is a view of.
  void note(const at::Tensor& read) {
    if (Entry* entry = find(read)) ++entry->reads;
  }
  // Whether it is a whole tensor of the module that one operator read.
  bool is_read_once(const at::Tensor& tensor) {
    const Entry* entry = find(tensor);
    return entry != nullptr && entry->reads == 1 && entry->tensor.is_same(tensor);
  }
  bool is_read(const at::Tensor& tensor) {
    const Entry* entry = find(tensor);
    return entry != nullptr && entry->reads > 0;
  }
  std::string name_of(const at::Tensor& tensor) { return find(tensor)->name; }

 private:
  struct Entry {
    std::string name;
    at::Tensor tensor;
    int64_t reads = 0;
  };

  void add(const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.numel() == 0) return;
    entries_.emplace(address(tensor), Entry{name, tensor});
  }
  static const char* address(const at::Tensor& tensor) {
    return static_cast<const char*>(tensor.const_data_ptr());
  }
  Entry* find(const at::Tensor& tensor) {
    if (!tensor.has_storage() || tensor.numel() == 0) return nullptr;
    auto after = entries_.upper_bound(address(tensor));
    if (after == entries_.begin()) return nullptr;
    Entry& entry = std::prev(after)->second;
    const auto bytes = static_cast<int64_t>(entry.tensor.nbytes());
    return address(tensor) < address(entry.tensor) + bytes ? &entry : nullptr;
  }

  std::map<const char*, Entry> entries_;  // by address
};

std::vector<at::Tensor> tensors_in(c10::ArrayRef<c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

at::Tensor tensor_of(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::Tensor();
}

bool is_convolution(std::string_view name, c10::ArrayRef<c10::IValue> arguments) {
  if (name == "aten::convolution") return !arguments[6].toBool();  // transposed
  return name == "aten::conv1d" || name == "aten::conv2d" || name == "aten::conv3d";
}

// batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn)
std::optional<NormAfter> norm_by_running_statistics(std::string_view name,
                                                    c10::ArrayRef<c10::IValue> arguments) {
  if (name != "aten::batch_norm" || arguments[5].toBool()) return std::nullopt;
  NormAfter norm{.weight = tensor_of(arguments[1]),
                 .bias = tensor_of(arguments[2]),
                 .mean = tensor_of(arguments[3]),
                 .variance = tensor_of(arguments[4]),
                 .eps = arguments[7].toDouble()};
  if (!norm.mean.defined() || !norm.variance.defined()) return std::nullopt;
  return norm;
}

// Observes the operators that the program calls, not the operators inside them.
class NormFinder final : public DryObserver {
 public:
  explicit NormFinder(const torch::nn::Module& module) : tensors_(module) {}

  void around(const DryCall& call, c10::function_ref<void()> run) override {
    if (depth_ > 0) return run_below(run);
    const auto arguments = call.arguments();
    const std::string_view name = call.op.operator_name().name;
    const std::vector<at::Tensor> read = tensors_in(arguments);
    for (const at::Tensor& tensor : read) tensors_.note(tensor);
    std::optional<FoldedConvolution> convolution;
    if (is_convolution(name, arguments)) {
      convolution =
          FoldedConvolution{.weight = tensor_of(arguments[1]), .bias = tensor_of(arguments[2])};
    }
    auto norm = norm_by_running_statistics(name, arguments);
    run_below(run);
    const auto results = tensors_in(call.results());
    for (size_t i = 0; i < read.size(); ++i) {
      FoldedConvolution* const before = made(read[i]);
      if (before == nullptr || passes_on(call, results, *before)) continue;
      if (i == 0 && norm && !before->norm && before->output.is_same(read[i])) {
        before->norm = std::exchange(norm, std::nullopt);
      } else {
        before->is_read_otherwise = true;
      }
    }
    if (convolution && results.size() == 1) {
      convolution->output = results[0];
      convolutions_.push_back(std::move(*convolution));
    }
  }

  // `tensor` is a result of the task. If it is a convolution's result, that convolution stays as it
  // is.
  void note_result(const at::Tensor& tensor) {
    FoldedConvolution* const before = tensor.defined() ? made(tensor) : nullptr;
    if (before != nullptr) before->is_read_otherwise = true;
  }

  // The convolutions that can be folded.
  std::vector<FoldedConvolution> found() {
    std::vector<FoldedConvolution> all;
    for (const auto& one : convolutions_) {
      if (one.norm && !one.is_read_otherwise && are_their_own(one)) all.push_back(one);
    }
    return all;
  }
  // Whether this forward also allows folding `other`, or reads none of its tensors.
  bool agrees_with(const FoldedConvolution& other) {
    const std::vector<FoldedConvolution> own = found();
    const bool is_alike = std::any_of(own.begin(), own.end(), [&](const auto& one) {
      return one.weight.is_same(other.weight) && one.norm->mean.is_same(other.norm->mean);
    });
    const NormAfter& norm = *other.norm;
    const at::Tensor all[] = {other.weight, other.bias, norm.weight,
                              norm.bias,    norm.mean,  norm.variance};
    return is_alike || std::none_of(std::begin(all), std::end(all), [&](const auto& tensor) {
             return tensor.defined() && tensors_.is_read(tensor);
           });
  }
  std::string name_of(const at::Tensor& tensor) { return tensors_.name_of(tensor); }

 private:
  void run_below(c10::function_ref<void()> run) {
    ++depth_;
    const auto leave = c10::make_scope_exit([this] { --depth_; });
    run();
  }

  // The convolution whose result `tensor` is, or is a view of.
  FoldedConvolution* made(const at::Tensor& tensor) {
    if (!tensor.has_storage()) return nullptr;
    const auto found =
        std::find_if(convolutions_.begin(), convolutions_.end(), [&](const auto& one) {
          return one.output.storage().unsafeGetStorageImpl() ==
                 tensor.storage().unsafeGetStorageImpl();
        });
    return found == convolutions_.end() ? nullptr : &*found;
  }

  // Whether the operator only asked for shapes, or returned its argument as it is.
  static bool passes_on(const DryCall& call, const std::vector<at::Tensor>& results,
                        const FoldedConvolution& of) {
    if (call.op.schema().is_mutable()) return false;
    return std::all_of(results.begin(), results.end(),
                       [&](const at::Tensor& result) { return result.is_same(of.output); });
  }

  bool are_their_own(const FoldedConvolution& one) {
    const NormAfter& norm = *one.norm;
    const auto fits = [&](const at::Tensor& tensor) {
      const auto dtype = tensor.scalar_type();
      return tensors_.is_read_once(tensor) && (dtype == at::kFloat || dtype == at::kDouble);
    };
    const auto fits_or_none = [&](const at::Tensor& tensor) {
      return !tensor.defined() || fits(tensor);
    };
    return fits(one.weight) && fits_or_none(one.bias) && fits_or_none(norm.weight) &&
           fits_or_none(norm.bias) && fits(norm.mean) && fits(norm.variance) &&
           one.weight.size(0) == norm.mean.numel() && one.output.dim() == one.weight.dim();
  }

  ModuleTensors tensors_;
  std::vector<FoldedConvolution> convolutions_;
  int64_t depth_ = 0;
};

// Returns whether the norm's scale is finite.
bool fold(const FoldedConvolution& convolution) {
  const NormAfter& norm = *convolution.norm;
  at::Tensor scale = (norm.variance.to(at::kDouble) + norm.eps).rsqrt();
  if (norm.weight.defined()) scale = scale * norm.weight.to(at::kDouble);
  if (!scale.isfinite().all().item<bool>()) return false;
  const auto multiply = [&](const at::Tensor& tensor) {
    std::vector<int64_t> sizes(static_cast<size_t>(tensor.dim()), 1);
    sizes[0] = -1;
    tensor.copy_(tensor.to(at::kDouble) * scale.view(sizes));
  };
  const at::Tensor shift = norm.mean.to(at::kDouble) * scale;
  multiply(convolution.weight);
  if (convolution.bias.defined()) multiply(convolution.bias);
  if (norm.bias.defined()) {
    norm.bias.copy_(norm.bias.to(at::kDouble) - shift);
    norm.mean.zero_();
  } else {
    norm.mean.copy_(shift);
  }
  if (norm.weight.defined()) norm.weight.fill_(1);
  norm.variance.fill_(1 - norm.eps);
  return true;
}

}  // namespace

std::vector<std::string> fold_batch_norms(const Task& task, const Batch& batch, Forwards forwards) {
  const at::NoGradGuard no_grad;
  NormFinder finder(*task.module);
  Task at_once = task;
  if (task.predict_rows) {  // in one part, so that each tensor is read as often as it is used
    at_once.predict_rows = [&task](const Batch& some) {
      PredictionRows rows = task.predict_rows(some);
      rows.at_once = rows.rows;
      return rows;
    };
  }
  {
    const DryScope dry(&finder, kRealConstants);
    evaluation_forward(at_once, without_memory(batch), [&](const Prediction& prediction) {
      finder.note_result(prediction.outputs);
      finder.note_result(prediction.targets);
    });
  }
  std::vector<FoldedConvolution> found = finder.found();
  if (forwards == Forwards::training_too) {
    for (const PhaseSpec& phase : task.phases) {
      NormFinder of_training(*task.module);
      {
        const DryScope dry(&of_training, kRealConstants);
        for (const Term& term : training_forward(task, phase, without_memory(batch))) {
          of_training.note_result(term.sum);
        }
      }
      std::erase_if(found, [&](const auto& one) { return !of_training.agrees_with(one); });
    }
  }
  std::vector<std::string> names;
  for (const FoldedConvolution& convolution : found) {
    if (fold(convolution)) names.push_back(finder.name_of(convolution.weight));
  }
  return names;
}

}  // namespace tanren
