#include "tanren/model/registry.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/names.h"
#include "tanren/config/kinds.h"
#include "tanren/model/bert.h"
#include "tanren/model/check_task.h"
#include "tanren/model/convnet.h"
#include "tanren/model/gpt2.h"
#include "tanren/model/lstm.h"
#include "tanren/model/mlp.h"
#include "tanren/model/pix2pixhd.h"
#include "tanren/model/resnet.h"
#include "tanren/model/supervised.h"
#include "tanren/model/vgg.h"

namespace tanren {
namespace {

template <typename Model>
Task make_zoo(const ModelOptions& options, const DataInfo& info) {
  DataInfo shape = info;
  shape.outputs = num_outputs(options, info);
  return supervised(std::make_shared<Model>(options, shape), options, info);
}

}  // namespace

ModelRegistry::ModelRegistry()
    : factories_{{"mlp", make_zoo<Mlp>}, {"convnet", make_zoo<Convnet>},
                 {"gpt2", gpt2_task},    {"bert", bert_task},
                 {"lstm", lstm_task},    {"resnet", resnet_task},
                 {"vgg", vgg_task},      {"pix2pixhd", pix2pixhd_task}} {
  for (const auto& [kind, factory] : factories_) zoo_.insert(kind);
}

void ModelRegistry::add(std::string kind, Factory factory) {
  const auto [place, is_new] = factories_.try_emplace(kind, std::move(factory));
  if (!is_new)
    throw Error("[model] kind '" + kind + "' is registered already; choose another name");
  if (!place->second) {
    factories_.erase(place);
    throw Error("[model] kind '" + kind + "' has an empty factory; give a function");
  }
}

Task ModelRegistry::make(const ModelOptions& options, const DataInfo& info) const {
  const auto found = factories_.find(options.kind);
  if (found == factories_.end()) {
    const std::string near = nearest(options.kind, kinds());
    throw ConfigError(
        "[model] kind '" + options.kind + "' is unknown; " +
        (near.empty() ? "there are " + join(kinds()) : "did you mean '" + near + "'?"));
  }
  Task task;
  try {
    task = found->second(options, info);
  } catch (...) {
    rethrow_known();
    std::throw_with_nested(
        Error("[model] kind '" + options.kind + "' could not be built: " + line_of_current()));
  }
  check_task(task, "[model] kind '" + options.kind + "'");
  if (options.append_head > 0 && !task.module->named_children().contains(kAppendedHead)) {
    const ModelKind* kind = model_kind(options.kind);
    const bool guesses = kind != nullptr && !kind->tasks.empty();
    throw ConfigError("[model] kind '" + options.kind +
                      (guesses ? "' guesses tokens and takes no appended head; set model.task = "
                                 "\"classify\", or drop model.append_head"
                               : "' takes no appended head; drop model.append_head"));
  }
  if (zoo_.contains(options.kind)) {
    for (PhaseSpec& phase : task.phases) phase.forward_on_one_thread = true;
  }
  return task;
}

std::vector<std::string> ModelRegistry::kinds() const {
  std::vector<std::string> names;
  for (const auto& [kind, factory] : factories_) names.push_back(kind);
  return names;
}

}  // namespace tanren
