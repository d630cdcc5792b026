#include "tanren/model/layer_table.h"

#include "tanren/base/error_line.h"
#include "tanren/base/text.h"
#include "tanren/dry/dry_batch.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/layer_owners.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace tanren {
namespace {

using Shape = std::vector<int64_t>;

// An operator without parameters, which waits until the next owner of a parameter is known.
struct Pending {
  std::string name;
  Shape shape;
  at::ScalarType dtype = at::ScalarType::Undefined;
  int64_t multiply_adds = 0;
  int64_t bytes = 0;
  std::optional<size_t> block;
};

std::string text(at::IntArrayRef sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

Shape shape_of(const OperatorCall& call) {
  return call.outputs.empty() ? Shape() : call.outputs.front().sizes().vec();
}

// Bytes of the results that are neither views of an input nor an input itself.
int64_t new_bytes(const OperatorCall& call) {
  int64_t bytes = 0;
  for (const at::Tensor& output : call.outputs) {
    const bool is_alias =
        std::any_of(call.inputs.begin(), call.inputs.end(), [&](const at::Tensor& input) {
          return input.unsafeGetTensorImpl() == output.unsafeGetTensorImpl() ||
                 (input.has_storage() && output.has_storage() &&
                  input.storage().unsafeGetStorageImpl() ==
                      output.storage().unsafeGetStorageImpl());
        });
    if (!is_alias) bytes += static_cast<int64_t>(output.nbytes());
  }
  return bytes;
}

Pending pending_of(const OperatorCall& call, std::optional<size_t> block) {
  return {.name = call.name,
          .shape = shape_of(call),
          .dtype =
              call.outputs.empty() ? at::ScalarType::Undefined : call.outputs.front().scalar_type(),
          .multiply_adds = call.multiply_adds,
          .bytes = new_bytes(call),
          .block = block};
}

// Whether autograd is running a backward on this thread.
bool in_backward() { return torch::autograd::get_current_node() != nullptr; }

class Recorder {
 public:
  // `trains`: a loss may pass through layers, and what comes after the last one is the loss.
  Recorder(const torch::nn::Module& root, const Batch& batch, bool trains)
      : owners_(root), trains_(trains) {
    for (const auto& layer : owners_.layers()) {
      LayerRow row{.name = layer.name, .type = layer.type};
      row.depth =
          layer.name.empty() ? 0 : std::count(layer.name.begin(), layer.name.end(), '.') + 1;
      table_.rows.push_back(std::move(row));
    }
    size_t index = 0;
    count_parameters(root, index);
    const at::Tensor* inputs = batch.fields.find("inputs");
    table_.batch = batch.size();
    if (inputs != nullptr) table_.input_shape = inputs->sizes().vec();
    for (const auto& [name, field] : batch.fields) {
      if (inputs == nullptr || name == "inputs") {
        table_.input_bytes += static_cast<int64_t>(field.nbytes());
      }
      if (name == "labels" && inputs != nullptr) of_labels_.insert(field.unsafeGetTensorImpl());
    }
  }

  void operator_ran(const OperatorCall& call) {
    if (in_backward()) return;  // of a forward that differentiates, for a penalty of gradients
    if (starts_loss(call)) return;
    const auto owner = trains_ || !in_loss_ ? owners_.by_parameter(call) : std::nullopt;
    if (in_loss_ && !owner) {
      table_.loss_bytes += new_bytes(call);
      return;
    }
    if (!owner) {
      pending_.push_back(pending_of(call, block()));
      return;
    }
    if (is_made_of_parameters(call)) return;
    in_loss_ = false;
    settle(owner);
    LayerRow& row = table_.rows[*owner];
    ++row.uses;
    charge(*owner, pending_of(call, {}));
    before_ = owner;
  }

  void phase_ends() {
    settle(std::nullopt);
    before_.reset();
    in_loss_ = false;
  }

  void block_begins(std::string_view name) {
    blocks_.push_back(owners_.block_named(name, block()));
  }
  void block_ends() {
    if (!blocks_.empty()) blocks_.pop_back();
  }

  void failed(const OperatorError& error) {
    settle(std::nullopt);
    if (trains_ || !in_loss_) table_.mismatch = mismatch_text(error);
  }
  void failed(const std::string& reason) {
    settle(std::nullopt);
    table_.mismatch = "[summary] the forward stops in a run without values: " + reason;
  }

  LayerTable finish(const at::Tensor& outputs) {
    settle(std::nullopt);
    if (outputs.defined()) {
      table_.rows[0].output_shape = outputs.sizes().vec();
      table_.rows[0].output_dtype = outputs.scalar_type();
    }
    return table_;
  }

 private:
  std::optional<size_t> block() const {
    const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(),
                                    [](const auto& block) { return block.has_value(); });
    return found == blocks_.rend() ? std::nullopt : *found;
  }

  // The rows are in the order in which LayerOwners walks the modules.
  void count_parameters(const torch::nn::Module& module, size_t& index) {
    LayerRow& row = table_.rows[index++];
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      if (!seen_.insert(item.value().unsafeGetTensorImpl()).second) continue;
      if (row.parameters == 0) row.parameter_dtype = item.value().scalar_type();
      row.parameters += item.value().numel();
      if (item.value().requires_grad()) row.trainable += item.value().numel();
      table_.parameter_bytes += static_cast<int64_t>(item.value().nbytes());
    }
    for (const auto& item : module.named_buffers(/*recurse=*/false)) {
      if (!seen_.insert(item.value().unsafeGetTensorImpl()).second) continue;
      table_.buffer_bytes += static_cast<int64_t>(item.value().nbytes());
    }
    for (const auto& child : module.children()) count_parameters(*child, index);
  }

  // The loss starts at the first operator that combines labels with something else. Operators on
  // labels alone do not start it.
  bool starts_loss(const OperatorCall& call) {
    const auto is_label = [&](const at::Tensor& tensor) {
      return of_labels_.count(tensor.unsafeGetTensorImpl()) > 0;
    };
    const auto labels = std::count_if(call.inputs.begin(), call.inputs.end(), is_label);
    if (in_loss_ || labels == 0) return false;
    if (labels == static_cast<int64_t>(call.inputs.size())) {
      for (const at::Tensor& output : call.outputs) {
        of_labels_.insert(output.unsafeGetTensorImpl());
        kept_.push_back(output);
      }
      return true;
    }
    settle(std::nullopt);
    in_loss_ = true;
    return false;
  }

  static bool is_made_of_parameters(const OperatorCall& call) {
    return call.multiply_adds == 0 && new_bytes(call) == 0 && call.inputs.size() == 1;
  }

  void settle(std::optional<size_t> after) {
    for (const Pending& pending : pending_) {
      const size_t owner = owners_.by_place(pending.name, before_, after, pending.block);
      // Operators after the last layer belong to the loss, unless they belong to a layer without
      // parameters that is registered after the last one and has not run yet.
      const bool is_loss = trains_ && !after && before_ &&
                           (owner < *before_ || !owners_.layers()[owner].is_plain ||
                            table_.rows[owner].output_dtype != at::ScalarType::Undefined);
      if (!is_loss) charge(owner, pending);
    }
    pending_.clear();
  }

  void charge(size_t owner, const Pending& done) {
    table_.rows[owner].multiply_adds += done.multiply_adds;
    table_.rows[owner].activation_bytes += done.bytes;
    for (size_t i = owner;; i = owners_.layers()[i].parent) {
      table_.rows[i].output_shape = done.shape;
      table_.rows[i].output_dtype = done.dtype;
      if (i == 0) break;
    }
  }

  std::string layer_text(size_t layer) const {
    const LayerRow& row = table_.rows[layer];
    return row.name.empty() ? row.type : fmt::format("{} ({})", row.name, row.type);
  }

  std::string mismatch_text(const OperatorError& error) {
    const OperatorCall& call = error.call();
    const auto owner = owners_.by_parameter(call);
    const std::string before = before_
                                   ? fmt::format("; before it: {} gave {}", layer_text(*before_),
                                                 text(table_.rows[*before_].output_shape))
                                   : "";
    std::vector<std::string> shapes;
    for (const at::Tensor& input : call.inputs) shapes.push_back(text(input.sizes()));
    if (owner && !error.expected().empty()) {
      const auto input = std::find_if(call.inputs.begin(), call.inputs.end(),
                                      [&](const auto& x) { return !owners_.owns(x); });
      return fmt::format("[summary] {} got an input of shape {} and expects {}{}; make them equal",
                         layer_text(*owner), input != call.inputs.end() ? text(input->sizes()) : "",
                         error.expected(), before);
    }
    const size_t place = owner ? *owner : owners_.by_place("", before_, {}, block());
    return fmt::format("[summary] in {}, {} cannot take inputs of shapes {}: {}{}",
                       layer_text(place), call.name, fmt::join(shapes, " and "), error.what(),
                       before);
  }

  LayerOwners owners_;
  bool trains_;
  LayerTable table_;
  std::set<const at::TensorImpl*> seen_;       // parameters and buffers already counted
  std::set<const at::TensorImpl*> of_labels_;  // labels, and results of them alone
  std::vector<at::Tensor> kept_;               // kept alive so that no address is reused
  std::vector<Pending> pending_;
  std::optional<size_t> before_;               // the last owner of a parameter
  std::vector<std::optional<size_t>> blocks_;  // the modules of the open blocks
  bool in_loss_ = false;
};

// run_block notifies profilers through plain functions, which can reach only static storage.
thread_local Recorder* listening = nullptr;

std::unique_ptr<at::ObserverContext> on_block_begin(const at::RecordFunction& block) {
  if (listening != nullptr) listening->block_begins(block.name());
  return nullptr;
}

void on_block_end(const at::RecordFunction&, at::ObserverContext*) {
  if (listening != nullptr) listening->block_ends();
}

class ListenScope {
 public:
  explicit ListenScope(Recorder& recorder)
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(on_block_begin, on_block_end)
                                               .scopes({at::RecordScope::USER_SCOPE}))) {
    listening = &recorder;
  }
  ~ListenScope() {
    listening = nullptr;
    at::removeCallback(handle_);
  }
  ListenScope(const ListenScope&) = delete;
  ListenScope& operator=(const ListenScope&) = delete;

 private:
  at::CallbackHandle handle_;
};

// Smaller tensors hold values: models compute constants such as dropout rates with tensors.
constexpr int64_t kRealBytes = 64 << 10;

// Makes the task in a dry run, calls `run` and returns the table of its operators. `run` returns
// the model's outputs.
LayerTable recorded(const std::function<Task()>& make_task, const Batch& batch, bool trains,
                    const std::function<at::Tensor(const Task&, const Batch&, Recorder&)>& run) {
  Recorder* recorder = nullptr;
  LayerCalls calls([&recorder](const OperatorCall& call) {
    if (recorder != nullptr) recorder->operator_ran(call);
  });
  const DryScope scope(&calls, kRealBytes);
  const Task task = make_task();
  const Batch shapes = without_memory(batch);
  Recorder recording(*task.module, shapes, trains);
  recorder = &recording;
  const ListenScope listen(recording);
  try {
    return recording.finish(run(task, shapes, recording));
  } catch (const OperatorError& error) {
    recording.failed(error);
  }
  return recording.finish({});
}

}  // namespace

LayerRow LayerTable::total() const {
  LayerRow sum;
  for (const LayerRow& row : rows) {
    sum.parameters += row.parameters;
    sum.trainable += row.trainable;
    sum.multiply_adds += row.multiply_adds;
    sum.activation_bytes += row.activation_bytes;
  }
  return sum;
}

LayerTable layer_table(const std::function<Task()>& make_task, const Batch& batch) {
  return recorded(make_task, batch, /*trains=*/false,
                  [](const Task& task, const Batch& shapes, Recorder&) {
                    task.module->eval();
                    const at::NoGradGuard no_gradients;
                    if (task.predict) return task.predict(shapes).outputs;
                    for (const PhaseSpec& phase : task.phases) phase.forward(shapes);
                    return at::Tensor();
                  });
}

LayerTable training_table(const std::function<Task()>& make_task, const Batch& batch,
                          const RunForward& run) {
  return recorded(make_task, batch, /*trains=*/true,
                  [&run](const Task& task, const Batch& shapes, Recorder& recorder) {
                    try {
                      for (const PhaseSpec& phase : task.phases) {
                        run(task, phase, shapes);
                        recorder.phase_ends();
                      }
                    } catch (const OperatorError&) {
                      throw;
                    } catch (...) {
                      recorder.failed(line_of_current());
                    }
                    return at::Tensor();
                  });
}

}  // namespace tanren
