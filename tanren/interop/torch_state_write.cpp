#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/config/kinds.h"
#include "tanren/config/read_config.h"
#include "tanren/formats/pt_file.h"
#include "tanren/interop/export.h"
#include "tanren/interop/torch_optimizer.h"
#include "tanren/interop/torch_state.h"
#include "tanren/interop/torch_state_kinds.h"
#include "tanren/optimizer/parameter_values.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tanren {

void check_travels(const std::string& kind) {
  const OptimizerKind* found = optimizer_kind(kind);
  if (found != nullptr && reads(*found, "init_from")) return;
  throw ConfigError("[optimizer] the state of " + kind +
                    " does not travel between torch and tanren; that of adamw, adam and sgd does");
}

std::vector<std::string> kept_by(const OptimizerOptions& options) {
  if (options.kind == "sgd") {
    return *options.momentum > 0 ? std::vector<std::string>{"momentum_buffer"}
                                 : std::vector<std::string>{};
  }
  std::vector<std::string> kept = {"exp_avg", "exp_avg_sq", "step"};
  if (options.amsgrad) kept.emplace_back("max_exp_avg_sq");
  return kept;
}

namespace {

using Parameters = std::vector<NamedParameter>;

// "train.loss": the only objective of a checkpoint.
std::string objective_of(const Snapshot& snapshot, const std::string& folder) {
  constexpr std::string_view kStart = "objective.", kEnd = ".step";
  std::vector<std::string> names;
  for (const auto& [key, value] : snapshot.run.values) {
    if (!key.starts_with(kStart) || !key.ends_with(kEnd)) continue;
    names.push_back(key.substr(kStart.size(), key.size() - kStart.size() - kEnd.size()));
  }
  if (names.size() == 1) return names.front();
  throw ConfigError(
      fmt::format("[convert] {} has {} objectives ({}), a torch checkpoint one optimizer; convert "
                  "without --optimizer",
                  folder, to_text(std::ssize(names)), join(names)));
}

std::map<std::string, Value> torch_options(const OptimizerOptions& o,
                                           const ParameterValues& values) {
  std::map<std::string, Value> options = {{"lr", o.learning_rate * values.learning_rate_scale},
                                          {"weight_decay", values.weight_decay},
                                          {"maximize", false}};
  if (o.kind == "sgd") {
    options["momentum"] = *o.momentum;
    options["dampening"] = o.dampening;
    options["nesterov"] = *o.nesterov;
    return options;
  }
  options["betas.0"] = o.beta1;
  options["betas.1"] = *o.beta2;
  options["eps"] = *o.eps;
  options["amsgrad"] = o.amsgrad;
  options["decoupled_weight_decay"] = decouples_decay(o);
  options["capturable"] = false;
  options["differentiable"] = false;
  return options;
}

// The state that torch would hold for a parameter; empty if it was never updated.
State torch_state_of(const State& optimizer, const std::string& objective,
                     const NamedParameter& parameter, const OptimizerOptions& options) {
  State state;
  const std::string start = objective + "." + parameter.name + ".";
  const auto started = optimizer.values.find(start + "started");
  if (started != optimizer.values.end() && !std::get<bool>(started->second)) return state;
  const auto kept = kept_by(options);
  const auto has = [&](const std::string& name) {
    return optimizer.tensors.contains(start + name);
  };
  if (std::none_of(kept.begin(), kept.end(), has)) return state;
  for (const auto& name : kept) {
    const at::Tensor& tensor = has(name) ? optimizer.tensors.at(start + name) : at::Tensor();
    const int64_t elements = name == "step" ? 1 : parameter.tensor.numel();
    if (!tensor.defined() || tensor.numel() != elements) {
      throw CheckpointError(
          fmt::format("[convert] the checkpoint's optimizer has no {} of {} with its {} elements; "
                      "it is damaged, or of another optimizer",
                      name, parameter.name, to_text(elements)));
    }
    if (name == "step" && tensor.item<double>() == 0) return {};
    state.tensors.set(name, name == "step" ? tensor : tensor.reshape(parameter.tensor.sizes()));
  }
  return state;
}

// The fp32 copies of parameters of 16 bits: what the optimizer updated, which the model file holds
// rounded.
TensorMap parameters_of_copies(const Snapshot& snapshot, const std::string& objective,
                               const Parameters& parameters) {
  TensorMap copies;
  for (const NamedParameter& parameter : parameters) {
    const auto* copy =
        snapshot.optimizer.tensors.find(objective + "." + parameter.name + ".master_weight");
    if (copy != nullptr) copies.set(parameter.name, *copy);
  }
  return copies;
}

}  // namespace

void write_torch_checkpoint(const std::filesystem::path& checkpoint,
                            const std::filesystem::path& file, const KnownKinds& known) {
  Snapshot snapshot = read_checkpoint(checkpoint);
  snapshot.model.tensors =
      plain_tensors(snapshot.model.tensors, snapshot.run.values, snapshot.config_toml);
  snapshot.optimizer = StoredState(snapshot.optimizer, snapshot.slices).joined();
  const RunConfig config = parse_config(snapshot.config_toml, (checkpoint / "config.toml").string(),
                                        checkpoint, {}, known);
  const std::string objective = objective_of(snapshot, checkpoint.string());
  const OptimizerOptions options =
      with_defaults(optimizer_of(config, objective.substr(objective.rfind('.') + 1)));
  check_travels(options.kind);
  Parameters parameters;
  for (const auto& [name, tensor] : snapshot.model.tensors) {
    if (snapshot.run.values.count("requires_grad." + name) > 0)
      parameters.push_back({name, tensor});
  }
  for (const auto& [name, tensor] : parameters_of_copies(snapshot, objective, parameters)) {
    snapshot.model.tensors.set(name, tensor);
  }
  const auto values = parameter_values(options, parameters);
  TorchOptimizer torch;
  std::vector<ParameterValues> of_groups;
  std::vector<std::vector<size_t>> members;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = std::find(of_groups.begin(), of_groups.end(), values[i]);
    const auto place = static_cast<size_t>(found - of_groups.begin());
    if (found == of_groups.end()) {
      of_groups.push_back(values[i]);
      members.emplace_back();
    }
    members[place].push_back(i);
  }
  int64_t number = 0;
  for (size_t g = 0; g < members.size(); ++g) {
    auto& group = torch.groups.emplace_back();
    group.options = torch_options(options, of_groups[g]);
    for (const size_t i : members[g]) {
      const std::string& name = parameters[i].name;
      State state = torch_state_of(snapshot.optimizer, objective, parameters[i], options);
      if (!state.tensors.empty()) torch.state.emplace(number, std::move(state));
      group.parameters.push_back(number++);
      group.names.push_back(name);
    }
  }
  PtValue document = PtValue::dict();
  document.add(Value(std::string("model")), PtValue::dict(snapshot.model.tensors));
  document.add(Value(std::string("optimizer")), to_pt(torch));
  document.add(
      Value(std::string("step")),
      PtValue::of(Value(value_of<int64_t>(snapshot.run, "objective." + objective + ".step"))));
  document.add(Value(std::string("epoch")),
               PtValue::of(Value(value_of<int64_t>(snapshot.run, "epoch"))));
  write_pt(file, document);
}

}  // namespace tanren
