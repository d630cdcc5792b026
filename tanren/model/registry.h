// ModelRegistry: which model kinds a config may name. The zoo is in it from the start; a program
// adds its own before it runs. A plain value, no global; read-only use is thread-safe.
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

  ModelRegistry();  // mlp, convnet, gpt2, bert, lstm, resnet, vgg
  // Error if `kind` is there already. Whether its forwards are on one thread its tasks say.
  void add(std::string kind, Factory factory);
  // The task of options.kind; ConfigError naming the nearest kind, or what does not fit the data.
  Task make(const ModelOptions& options, const DataInfo& info) const;
  std::vector<std::string> kinds() const;  // sorted
  // Whether `kind` was there from the start: its factory makes a new module at each call.
  bool is_of_the_zoo(const std::string& kind) const { return zoo_.count(kind) > 0; }

 private:
  std::map<std::string, Factory> factories_;
  std::set<std::string> zoo_;  // the kinds that were there from the start
};

}  // namespace tanren
