// ModelRegistry: the model kinds that a config may name. It starts with the zoo; a program adds its
// own kinds before the run. A plain value, no global; read-only use is thread-safe.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tanren {

// Properties that a kind guarantees for its tasks and its factory. A run assumes no others.
struct KindTraits {
  // Sets PhaseSpec::forward_on_one_thread of all phases. Do not set it for a kind whose forward
  // reads parameters by their addresses, such as a compiled graph, because that forward must wait
  // for all parameters.
  bool forward_on_one_thread = false;
  // The factory makes a new module at each call and keeps none, and all weights are drawn with
  // model/init.h. So it may be called in a dry run, and under a NoInitScope.
  bool makes_anew = false;
};

class ModelRegistry {
 public:
  using Factory = std::function<Task(const ModelOptions&, const DataInfo&)>;

  ModelRegistry();  // mlp, convnet, gpt2, bert, lstm, resnet, vgg, pix2pixhd, torchscript, package
  // Error if `kind` exists already.
  void add(std::string kind, Factory factory, KindTraits traits = {});
  // The task of options.kind. ConfigError for an unknown kind (names the nearest) or data that does
  // not fit.
  Task make(const ModelOptions& options, const DataInfo& info) const;
  std::vector<std::string> kinds() const;  // sorted
  // KindTraits::makes_anew; false for an unknown kind.
  bool makes_anew(const std::string& kind) const;

 private:
  struct Kind {
    Factory factory;
    KindTraits traits;
  };
  std::map<std::string, Kind> kinds_;
};

}  // namespace tanren
