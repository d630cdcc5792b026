#include "tanren/model/torchscript.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/model/compiled_graph.h"
#include "tanren/model/losses.h"
#include "tanren/model/supervised.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tanren {
namespace {

namespace jit = torch::jit;

// Arguments of operators that draw: at 0 they draw nothing.
constexpr const char* kProbabilities[] = {"p", "dropout_p", "dropout"};

// Whether both are one tensor under two names. A file may hold it as two tensors in the same
// memory.
bool are_tied(const at::Tensor& one, const at::Tensor& other) {
  return one.numel() > 0 && one.const_data_ptr() == other.const_data_ptr() &&
         one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes() &&
         one.strides() == other.strides();
}

// The last line that says something, without the name of Python's exception.
std::string last_line(std::string_view text) {
  constexpr std::string_view kName = "RuntimeError: ";
  const size_t end = text.find_last_not_of(" \n\r");
  if (end == std::string_view::npos) return std::string(text);
  text = text.substr(0, end + 1);
  text = text.substr(text.rfind('\n') + 1);
  if (text.starts_with(kName)) text.remove_prefix(kName.size());
  return std::string(text);
}

class ScriptNode : public torch::nn::Module {
 public:
  // Appends the parameters that it adds to `parameters`. `checksum` is the file's, and only the
  // outermost module has it.
  ScriptNode(jit::Module script, std::vector<at::Tensor>& parameters, std::string checksum = "")
      : torch::nn::Module(script.type()->name()->name()),
        script_(std::move(script)),
        checksum_(std::move(checksum)) {
    const auto flag = script_.type()->findAttributeSlot("training");
    if (flag) torch::nn::Module::train(script_._ivalue()->getSlot(*flag).toBool());
    for (const auto& item : script_.named_parameters(/*recurse=*/false)) {
      const auto first =
          std::find_if(parameters.begin(), parameters.end(),
                       [&](const at::Tensor& other) { return are_tied(item.value, other); });
      if (first == parameters.end()) {
        parameters.push_back(item.value);
        register_parameter(item.name, item.value, item.value.requires_grad());
      } else {
        script_.setattr(item.name, *first);
        register_parameter(item.name, *first, first->requires_grad());
      }
    }
    for (const auto& item : script_.named_buffers(/*recurse=*/false)) {
      if (item.value.defined()) register_buffer(item.name, item.value);
    }
    for (const auto& item : script_.named_children()) {
      register_module(item.name, std::make_shared<ScriptNode>(item.value, parameters));
    }
  }

  void train(bool on = true) override {
    torch::nn::Module::train(on);  // and the modules inside
    const auto flag = script_.type()->findAttributeSlot("training");
    if (flag) script_._ivalue()->setSlot(*flag, on);
  }

  const jit::Module& script() const { return script_; }
  const std::string& checksum() const { return checksum_; }

 private:
  jit::Module script_;
  std::string checksum_;
};

// The name that messages give the file.
std::string script_named(const std::filesystem::path& file) { return "[model] " + file.string(); }

// Calls a script's forward: maps fields to arguments, and takes the tensor out of the result.
class ScriptForward {
 public:
  ScriptForward(std::shared_ptr<ScriptNode> root, std::filesystem::path file)
      : root_(std::move(root)), file_(std::move(file)) {
    const auto method = root_->script().find_method("forward");
    if (!method || method->function().getSchema().arguments().size() < 2) {
      throw ConfigError(script_named(file_) +
                        " has no forward with an argument; script a module whose forward takes "
                        "its inputs");
    }
    for (const at::Tensor& parameter : root_->parameters()) {
      const bool is_better =
          !reference_.defined() || (reference_.dim() < 2 && parameter.dim() >= 2);
      if (parameter.is_floating_point() && is_better) reference_ = parameter;
    }
  }

  at::Tensor operator()(const Batch& batch) const {
    const jit::Method method = root_->script().get_method("forward");
    const auto& arguments = method.function().getSchema().arguments();
    std::unordered_map<std::string, c10::IValue> by_name;
    for (size_t i = 2; i < arguments.size(); ++i) {  // after the module and the inputs
      const auto& argument = arguments[i];
      const bool has_default = argument.default_value().has_value();
      const at::Tensor* field = batch.fields.find(argument.name());
      if (has_default && (field == nullptr || argument.name() == "labels")) continue;
      if (field == nullptr) refuse_argument(argument.name(), batch);
      by_name[argument.name()] = cast(*field);
    }
    // Turns the optimising executor off for this thread. It compiles again after its first calls,
    // so that a resumed run would use other kernels than a run without interruption.
    const jit::GraphOptimizerEnabledGuard as_it_is_written(false);
    const int64_t refusals = num_refusals(device());
    c10::IValue result;
    try {
      result = method({cast(batch["inputs"])}, by_name);
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const std::exception& error) {
      // The interpreter makes a std::runtime_error of every exception, with the cause at its end.
      TORCH_CHECK_WITH(OutOfMemoryError, num_refusals(device()) == refusals, "[memory] no room in ",
                       file_.string());
      throw std::runtime_error(last_line(error.what()));
    }
    return tensor_of(result);
  }

 private:
  [[noreturn]] void refuse_argument(const std::string& name, const Batch& batch) const {
    std::string fields;
    for (const auto& [field, tensor] : batch.fields) fields += (fields.empty() ? "" : ", ") + field;
    throw ConfigError(
        fmt::format("{}: forward wants {}, and the data has no such field, only {}; give the "
                    "argument a default, or the field its name",
                    script_named(file_), name, fields));
  }

  at::Device device() const { return reference_.defined() ? reference_.device() : at::kCPU; }

  // Floating fields take the dtype of the weights.
  at::Tensor cast(const at::Tensor& field) const {
    const bool casts = reference_.defined() && field.is_floating_point();
    return casts ? field.to(reference_.scalar_type()) : field;
  }

  at::Tensor tensor_of(const c10::IValue& result) const {
    if (result.isTensor()) return result.toTensor();
    if (result.isTuple()) {
      const auto& elements = result.toTupleRef().elements();
      if (!elements.empty() && elements[0].isTensor()) return elements[0].toTensor();
    }
    if (result.isGenericDict()) {
      const auto values = result.toGenericDict();
      const auto logits = values.find(c10::IValue("logits"));
      if (logits != values.end() && logits->value().isTensor()) return logits->value().toTensor();
    }
    throw ConfigError(fmt::format(
        "{}: forward gives {}; let it give a tensor, a tuple that begins with one, or a dictionary "
        "with one as \"logits\"",
        script_named(file_), result.type()->str()));
  }

  std::shared_ptr<ScriptNode> root_;
  std::filesystem::path file_;
  at::Tensor reference_;  // has the module's dtype, also after it is moved to another
};

// Whether the node's argument of that name is the constant `value`.
template <typename T>
bool is_always(const jit::Node& node, const char* name, T value) {
  if (!node.hasNamedInput(name)) return false;
  const auto constant = jit::toIValue(node.namedInput(name));
  if (!constant) return false;
  if (constant->isBool()) return constant->toBool() == static_cast<bool>(value);
  return constant->isScalar() && constant->toScalar().toDouble() == static_cast<double>(value);
}

bool normalises_over_samples(const jit::Node& node) {
  const std::string_view kind = node.kind().toQualString();
  return kind.starts_with("aten::") && kind.find("batch_norm") != std::string_view::npos &&
         !is_always(node, "training", false);
}

bool draws_of_torch(const jit::Node& node) {
  if (!node.isNondeterministic()) return false;
  return std::none_of(std::begin(kProbabilities), std::end(kProbabilities),
                      [&](const char* name) { return is_always(node, name, 0.0); });
}

// Refuses operators that would silently compute other numbers than the file's author expects.
void check_node(const jit::Node& node, const std::filesystem::path& file) {
  const std::string_view kind = node.kind().toQualString();
  if (kind == "prim::SetAttr") {
    throw ConfigError(
        fmt::format("{}: forward assigns {}, which replaces a tensor that checkpoints and averages "
                    "hold; change "
                    "it in place (copy_, mul_, add_)",
                    script_named(file), node.s(c10::attr::name)));
  }
  const bool drops = kind.starts_with("aten::") && kind.find("dropout") != std::string_view::npos;
  const bool norms =
      kind.starts_with("aten::") && kind.find("batch_norm") != std::string_view::npos;
  const bool draws = drops && !is_always(node, "p", 0.0) && !is_always(node, "dropout", 0.0);
  if ((draws && is_always(node, "train", true)) || (norms && is_always(node, "training", true))) {
    throw ConfigError(fmt::format(
        "{}: {} is always in training mode, in evaluations, too; pass self.training, and write the "
        "file by torch.jit.script (a trace keeps the mode that it was made in)",
        script_named(file), kind));
  }
  if (draws && is_always(node, "train", false)) {
    throw ConfigError(fmt::format(
        "{}: {} never draws, as in a trace of a module in evaluation mode; write the file by "
        "torch.jit.script, or leave the dropout out",
        script_named(file), kind));
  }
}

// Adds the facts that the operators of the blocks imply.
void read_script_facts(const at::ArrayRef<const jit::Block*>& blocks,
                       const std::filesystem::path& file, TaskFacts& facts) {
  for (const jit::Block* block : blocks) {
    for (const jit::Node* node : block->nodes()) {
      check_node(*node, file);
      if (normalises_over_samples(*node)) facts.couples_samples = true;
      if (facts.torch_dropout->empty() && draws_of_torch(*node)) {
        facts.torch_dropout = node->kind().toQualString();
      }
      read_script_facts(node->blocks(), file, facts);
    }
  }
}

TaskFacts script_facts(const jit::Module& script, const std::filesystem::path& file) {
  TaskFacts facts{.couples_samples = false, .torch_dropout = "", .runs_dry = false};
  const auto graph = script.get_method("forward").graph()->copy();
  jit::Inline(*graph);
  read_script_facts({graph->block()}, file, facts);
  return facts;
}

Task token_task_of(const std::shared_ptr<ScriptNode>& root, const ScriptForward& forward,
                   const ModelOptions& options, const DataInfo& info) {
  const auto loss = [smoothing = options.label_smoothing](const at::Tensor& scores,
                                                          const Batch& batch) {
    return token_cross_entropy(scores, batch["labels"], smoothing);
  };
  Task task{.module = root};
  task.phases.emplace_back().forward = [forward, loss](const Batch& batch) {
    return Terms{loss(forward(batch), batch)};
  };
  task.loss_fields = {"labels"};
  task.predict = [forward, loss](const Batch& batch) {
    const at::Tensor scores = forward(batch);
    return Prediction{{loss(scores, batch)}, scores.transpose(1, 2), batch["labels"]};
  };
  task.metrics = class_metrics();
  task.classes = info.vocab_size;
  if (options.label_smoothing == 0) task.metrics.emplace_back("perplexity");
  add_text_metrics(task, options);
  return task;
}

// Two tensors in the same memory would be updated twice; one under two names is a tied weight.
void refuse_views(const ScriptNode& root, const std::filesystem::path& file) {
  std::map<const void*, std::pair<const at::TensorImpl*, std::string>> seen;
  for (const auto& item : root.named_parameters()) {
    const at::Tensor& own = item.value();
    const auto [first, is_first] =
        seen.try_emplace(own.const_data_ptr(), own.unsafeGetTensorImpl(), item.key());
    if (is_first || own.numel() == 0 || first->second.first == own.unsafeGetTensorImpl()) continue;
    throw ConfigError(
        fmt::format("{}: {} and {} are two tensors in the same memory, which would be trained "
                    "twice; let both names be one parameter",
                    script_named(file), first->second.second, item.key()));
  }
}

// Checks the first bytes before it reads the file, because a data set named by mistake may be
// large.
std::string bytes_of(const std::filesystem::path& file) {
  std::string first(2, ' ');
  std::ifstream(file, std::ios::binary).read(first.data(), 2);
  try {
    if (std::filesystem::is_regular_file(file) && first != "PK") {
      throw InputError("it is no zip archive");
    }
    return read_file(file);
  } catch (const InputError& error) {
    throw std::runtime_error(error.what());  // read_script names the file
  }
}

std::shared_ptr<ScriptNode> read_script(const std::filesystem::path& file) {
  try {
    // Read once, so that the checksum belongs to the loaded bytes even if the file is replaced.
    std::string bytes = bytes_of(file);
    std::string checksum = hash_text(content_hash(bytes));
    std::istringstream stream(std::move(bytes));
    std::vector<at::Tensor> parameters;
    auto root = std::make_shared<ScriptNode>(jit::load(stream, at::Device(at::kCPU)), parameters,
                                             std::move(checksum));
    refuse_views(*root, file);
    return root;
  } catch (...) {
    rethrow_known();
    throw ConfigError(
        fmt::format("{} cannot be read as a TorchScript file: {}; write it by "
                    "torch.jit.save(torch.jit.script(model), …)",
                    script_named(file), line_of_current()));
  }
}

}  // namespace

std::shared_ptr<torch::nn::Module> load_script(const std::filesystem::path& file) {
  return read_script(file);
}

std::string script_checksum(const torch::nn::Module& module) {
  const auto* node = dynamic_cast<const ScriptNode*>(&module);
  return node == nullptr ? "" : node->checksum();
}

Task torchscript_task(const ModelOptions& options, const DataInfo& info) {
  if (options.path.empty()) {
    throw ConfigError("[model] kind torchscript needs a file; set model.path");
  }
  const std::filesystem::path file = options.path;
  if (is_dry(at::empty({1 << 20}))) {  // small tensors of a dry run may be real
    throw NeedsValues(script_named(file) + ": a TorchScript file is not loaded in a dry run");
  }
  const auto root = read_script(file);
  root->train();  // from_pretrained and many others save in evaluation mode
  const ScriptForward forward(root, file);
  Task task = task_of(options) == "next_token" ? token_task_of(root, forward, options, info)
                                               : supervised_batches(root, forward, options, info);
  task.facts = script_facts(root->script(), file);
  return task;
}

}  // namespace tanren
