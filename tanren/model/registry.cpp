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
#include "tanren/model/package.h"
#include "tanren/model/pix2pixhd.h"
#include "tanren/model/resnet.h"
#include "tanren/model/supervised.h"
#include "tanren/model/torchscript.h"
#include "tanren/model/vgg.h"

#include <utility>

namespace tanren {
namespace {

template <typename Model>
Task make_zoo(const ModelOptions& options, const DataInfo& info) {
  DataInfo shape = info;
  shape.outputs = num_outputs(options, info);
  return supervised(std::make_shared<Model>(options, shape), options, info);
}

}  // namespace

ModelRegistry::ModelRegistry() {
  constexpr KindTraits kOfTheZoo{.forward_on_one_thread = true, .makes_anew = true};
  add("mlp", make_zoo<Mlp>, kOfTheZoo);
  add("convnet", make_zoo<Convnet>, kOfTheZoo);
  add("gpt2", gpt2_task, kOfTheZoo);
  add("bert", bert_task, kOfTheZoo);
  add("lstm", lstm_task, kOfTheZoo);
  add("resnet", resnet_task, kOfTheZoo);
  add("vgg", vgg_task, kOfTheZoo);
  add("pix2pixhd", pix2pixhd_task, kOfTheZoo);
  add("torchscript", torchscript_task);
  add("package", package_kind);
}

void ModelRegistry::add(std::string kind, Factory factory, KindTraits traits) {
  if (!factory) throw Error("[model] kind '" + kind + "' has an empty factory; give a function");
  const auto [place, is_new] = kinds_.try_emplace(std::move(kind));
  if (!is_new) {
    throw Error("[model] kind '" + place->first + "' is registered already; choose another name");
  }
  place->second = {.factory = std::move(factory), .traits = traits};
}

Task ModelRegistry::make(const ModelOptions& options, const DataInfo& info) const {
  const auto found = kinds_.find(options.kind);
  if (found == kinds_.end()) {
    const std::string near = nearest(options.kind, kinds());
    throw ConfigError(
        "[model] kind '" + options.kind + "' is unknown; " +
        (near.empty() ? "there are " + join(kinds()) : "did you mean '" + near + "'?"));
  }
  Task task;
  try {
    task = found->second.factory(options, info);
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
  if (found->second.traits.forward_on_one_thread) {
    for (PhaseSpec& phase : task.phases) phase.forward_on_one_thread = true;
  }
  return task;
}

std::vector<std::string> ModelRegistry::kinds() const {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds_) names.push_back(name);
  return names;
}

bool ModelRegistry::makes_anew(const std::string& kind) const {
  const auto found = kinds_.find(kind);
  return found != kinds_.end() && found->second.traits.makes_anew;
}

}  // namespace tanren
