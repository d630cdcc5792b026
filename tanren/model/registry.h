// ModelRegistry: the model kinds that a config may name. It starts with the zoo; a program adds its
// own kinds before the run. A plain value, no global; read-only use is thread-safe.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace tanren {

class ModelRegistry {
 public:
  using Factory = std::function<Task(const ModelOptions&, const DataInfo&)>;

  ModelRegistry();  // mlp, convnet, gpt2, bert, lstm, resnet, vgg, pix2pixhd
  // Error if `kind` exists already. The factory's tasks set PhaseSpec::forward_on_one_thread.
  void add(std::string kind, Factory factory);
  // The task of options.kind. ConfigError for an unknown kind (names the nearest) or data that does
  // not fit.
  Task make(const ModelOptions& options, const DataInfo& info) const;
  std::vector<std::string> kinds() const;  // sorted
  // Whether `kind` is of the zoo: its factory makes a new module at each call.
  bool is_of_the_zoo(const std::string& kind) const { return zoo_.count(kind) > 0; }

 private:
  std::map<std::string, Factory> factories_;
  std::set<std::string> zoo_;  // the kinds that the registry starts with
};

}  // namespace tanren
