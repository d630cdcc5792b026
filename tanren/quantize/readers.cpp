#include "tanren/quantize/readers.h"

#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/generators.h"
#include "tanren/base/names.h"
#include "tanren/base/operator_listener.h"
#include "tanren/base/random.h"
#include "tanren/base/value_tensors.h"
#include "tanren/dry/dry_batch.h"
#include "tanren/dry/dry_observer.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/quantize/fake_scope.h"
#include "tanren/quantize/replaced.h"
#include "tanren/quantize/weight_read.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace tanren {
namespace {

// Bytes. Smaller tensors hold values in a dry run, because models compute constants with tensors.
constexpr int64_t kRealBytes = 64 << 10;

// What one forward did with a parameter.
struct Notes {
  at::Tensor parameter;
  std::set<WeightReader> readers;
  std::string other;  // the first operator that no 8-bit one can stand in for, and when
  std::set<std::pair<int64_t, int64_t>> geometries;  // stride and padding of its convolutions
  bool shared = false;                               // different parameters share its memory
  bool is_predicted_with = false;                    // a prediction reads it
  std::set<WeightReader> predicted = {};             // the readers in predictions
  bool is_training = false;                          // the current forward is a training's

  void read_by_other(const std::string& what) {
    if (other.empty()) other = what + (is_training ? " reads it in training" : " reads it");
  }
  void read(const WeightRead& how) {
    if (how.reader) {
      readers.insert(*how.reader);
    } else {
      read_by_other(how.why);
    }
  }
};

// The notes of all parameters, by their memory: views of a parameter share it.
class Notebook {
 public:
  explicit Notebook(const torch::nn::Module& module) {
    for (const at::Tensor& parameter : module.parameters()) {
      if (!parameter.defined() || !parameter.has_storage()) continue;
      Notes& notes = of_[parameter.storage().unsafeGetStorageImpl()];
      if (!notes.parameter.defined()) {
        notes.parameter = parameter;
      } else if (!notes.parameter.is_same(parameter)) {
        notes.shared = true;
      }
    }
  }

  // From now on, reads count as a training's.
  void end_predictions() {
    for (auto& [storage, notes] : of_) {
      notes.is_predicted_with = !notes.readers.empty() || !notes.other.empty();
      notes.predicted = notes.readers;
      notes.is_training = true;
    }
  }

  // Null if it is no parameter.
  Notes* find(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return nullptr;
    const auto found = of_.find(tensor.storage().unsafeGetStorageImpl());
    return found != of_.end() ? &found->second : nullptr;
  }

 private:
  std::unordered_map<const c10::StorageImpl*, Notes> of_;
};

// Hears the operators that an 8-bit one can stand in for, and answers none.
class HookedReads final : public OperatorListener {
 public:
  explicit HookedReads(Notebook& notebook) : notebook_(notebook) {}

  Answer linear(const at::Tensor& input, const at::Tensor& weight, const Bias& bias) override {
    if (Notes* of = notebook_.find(input)) of->read_by_other("linear as its input");
    if (Notes* of = notebook_.find(weight)) {
      of->read(read_by_linear(input, weight, bias, of->parameter));
    }
    if (bias) note_bias(*bias);
    return {};
  }

  Answer addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right,
               const at::Scalar& beta, const at::Scalar& alpha) override {
    if (Notes* of = notebook_.find(left)) of->read_by_other("addmm as its left factor");
    if (Notes* of = notebook_.find(right)) {
      of->read(read_by_addmm(added, left, right, beta, alpha, of->parameter));
    }
    note_bias(added);
    return {};
  }

  Answer matmul(const at::Tensor& left, const at::Tensor& right) override {
    if (Notes* of = notebook_.find(left)) of->read_by_other("matmul as its left factor");
    if (Notes* of = notebook_.find(right)) of->read(read_by_matmul(left, right, of->parameter));
    return {};
  }

  Answer conv2d(const at::Tensor& input, const at::Tensor& weight, const Bias& bias,
                const Convolution& how) override {
    if (Notes* of = notebook_.find(input)) of->read_by_other("conv2d as its input");
    if (Notes* of = notebook_.find(weight)) {
      const WeightRead read = read_by_conv2d(input, weight, bias, how, of->parameter);
      of->read(read);
      if (read.reader) of->geometries.emplace(how.stride.front(), how.padding.front());
    }
    if (bias) note_bias(*bias);
    return {};
  }

  Answer embedding(const at::Tensor& weight, const at::Tensor& indices) override {
    if (Notes* of = notebook_.find(indices)) of->read_by_other("embedding as its indices");
    if (Notes* of = notebook_.find(weight)) of->read(read_by_embedding(weight, of->parameter));
    return {};
  }

 private:
  void note_bias(const at::Tensor& bias) {
    if (Notes* of = notebook_.find(bias)) of->read_by_other("an operator that adds it");
  }

  Notebook& notebook_;
};

// Notes all other operators that read a parameter.
class OtherReads final : public DryObserver {
 public:
  explicit OtherReads(Notebook& notebook) : notebook_(notebook) {}

  void around(const DryCall& call, c10::function_ref<void()> run) override {
    // Operators inside another operator do not count.
    if (inside_ || is_hooked(call)) return run_inside(run);
    std::vector<Notes*> read;
    for (const auto& value : call.arguments()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (Notes* of = notebook_.find(tensor)) read.push_back(of);
      });
    }
    run_inside(run);
    if (read.empty() || only_looks(call)) return;
    for (Notes* of : read) of->read_by_other(short_name(call));
  }

 private:
  void run_inside(c10::function_ref<void()> run) {
    const bool outer = std::exchange(inside_, true);
    const auto leave = c10::make_scope_exit([&] { inside_ = outer; });
    run();
  }

  static bool is_one_of(const DryCall& call, c10::ArrayRef<std::string_view> names) {
    return std::find(names.begin(), names.end(), call.op.operator_name().name) != names.end();
  }

  // Whether HookedReads hears the operator.
  static bool is_hooked(const DryCall& call) {
    constexpr std::array<std::string_view, 5> kHooked = {
        "aten::linear", "aten::addmm", "aten::matmul", "aten::conv2d", "aten::embedding"};
    return call.op.operator_name().overload_name.empty() && is_one_of(call, kHooked);
  }

  // Whether the operator only returned the whole parameter, unchanged or transposed. The operator
  // that reads this result is noted instead.
  bool only_looks(const DryCall& call) {
    constexpr std::array<std::string_view, 6> kViews = {
        "aten::t", "aten::transpose", "aten::numpy_T", "aten::detach", "aten::alias", "aten::to"};
    const auto results = call.results();
    return is_one_of(call, kViews) && results.size() == 1 && results[0].isTensor() &&
           notebook_.find(results[0].toTensor()) != nullptr;
  }

  static std::string short_name(const DryCall& call) {
    const auto& name = call.op.operator_name();
    const std::string own = name.name.substr(name.name.rfind(':') + 1);
    return own == "conv2d" ? own + " with a padding in words" : own;
  }

  Notebook& notebook_;
  bool inside_ = false;
};

// Puts the module into training mode, except for its batch norms, which stay in eval mode in a
// training that rounds. The destructor restores flags, buffers and the CPU's generator.
class TrainingModeScope {
 public:
  explicit TrainingModeScope(torch::nn::Module& module)
      : flags_(module), generators_(generator_states(at::kCPU)) {
    for (const at::Tensor& buffer : module.buffers()) {
      buffers_.push_back({buffer, buffer._version(), buffer.detach().clone()});
    }
    module.train();
    for (const auto& norm : batch_norms(module)) norm->eval();
  }
  ~TrainingModeScope() {
    const at::NoGradGuard no_gradients;
    for (const Kept& kept : buffers_) {
      if (kept.buffer._version() != kept.version) kept.buffer.copy_(kept.value);
    }
    set_generator_states(at::kCPU, generators_);
  }
  TrainingModeScope(const TrainingModeScope&) = delete;
  TrainingModeScope& operator=(const TrainingModeScope&) = delete;

 private:
  struct Kept {
    at::Tensor buffer;
    int64_t version;
    at::Tensor value;
  };

  EvalModeScope flags_;  // restores them
  TensorMap generators_;
  std::vector<Kept> buffers_;
};

void train_dry(const Task& task, const Batch& batch) {
  for (const PhaseSpec& phase : task.phases) (void)training_forward(task, phase, batch);
}

void train_dry_in_training_mode(const Task& task, const Batch& batch) {
  const RandomScope random(/*seed=*/0, /*attempt=*/0, batch.ids);
  for (const PhaseSpec& phase : task.phases) (void)phase.forward(batch);
}

void predict_dry(const Task& task, const Batch& batch) {
  if (task.predict) task.predict(batch);
  if (task.predict_rows) {
    const PredictionRows rows = task.predict_rows(batch);
    if (rows.rows > 0) rows.part(0, std::min(rows.rows, std::max<int64_t>(rows.at_once, 1)));
  }
  if (!task.predict && !task.predict_rows) train_dry(task, batch);
}

std::string joined_names(const std::set<WeightReader>& readers) {
  std::vector<std::string> names;
  names.reserve(readers.size());
  for (const WeightReader reader : readers) names.emplace_back(name(reader));
  return join(names, " and ");
}

ParameterReaders judged(const std::string& own, const at::Tensor& parameter, const Notes* notes) {
  const auto stays = [&](const std::string& why) {
    return ParameterReaders{own, std::nullopt, why};
  };
  if (parameter.dim() < 2) return stays("it is no matrix");
  const auto dtype = parameter.scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16) {
    return stays(std::string("it is ") + c10::toString(dtype));
  }
  if (notes != nullptr && notes->shared)
    return stays("it shares its memory with another parameter");
  if (notes == nullptr || !notes->is_predicted_with) {
    return stays("no operator reads it in a prediction");
  }
  if (!notes->other.empty()) return stays(notes->other);
  const auto& readers = notes->readers;
  const std::string names = joined_names(readers);
  static const std::set<WeightReader> tied = {WeightReader::linear, WeightReader::embedding};
  if (readers == tied) {
    return {.name = own,
            .reader = WeightReader::linear,
            .why = names,
            .is_linear_in_training_alone = notes->predicted.count(WeightReader::linear) == 0};
  }
  if (readers.size() > 1) return stays(names + " read it, which need different scales");
  if (notes->geometries.size() > 1) {
    return stays("convolutions of different strides or paddings read it");
  }
  return {own, *readers.begin(), names};
}

}  // namespace

std::vector<ParameterReaders> find_readers(const Task& task, const Batch& batch,
                                           Forwards forwards) {
  if (!task.facts.runs_dry) {
    throw NeedsValues(
        "[quantize] the task says that it cannot run without values, and a dry run finds which "
        "operators read each weight; train and write the model without 8-bit weights");
  }
  for (const auto& item : task.module->named_parameters()) {
    refuse_replaced(item.value(), item.key());
  }
  Notebook notebook(*task.module);
  OtherReads others(notebook);
  const auto run_dry = [&](const auto& work) {
    const at::NoGradGuard no_gradients;
    const DryScope dry(&others, kRealBytes);
    const OperatorListenerScope heard(std::make_shared<HookedReads>(notebook));
    work(task, without_memory(batch));
  };
  {
    const EvalModeScope eval(*task.module);
    run_dry(predict_dry);
    notebook.end_predictions();
    if (forwards == Forwards::training_too) run_dry(train_dry);
  }
  if (forwards == Forwards::training_too) {
    const TrainingModeScope training(*task.module);
    run_dry(train_dry_in_training_mode);
  }
  std::vector<ParameterReaders> found;
  std::unordered_map<const at::TensorImpl*, std::string> firsts;
  for (const auto& item : task.module->named_parameters()) {
    found.push_back(judged(item.key(), item.value(), notebook.find(item.value())));
    found.back().first =
        firsts.try_emplace(item.value().unsafeGetTensorImpl(), item.key()).first->second;
  }
  return found;
}

}  // namespace tanren
