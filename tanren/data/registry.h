// DatasetRegistry: the kinds of data that [data.train] and [data.eval] may name, those of the
// library and those that a program adds. A plain value, not a global; read-only use is thread-safe.
// A user's own binary fills it before it runs; run/ reads it.
#pragma once

#include "tanren/data/dataset.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

class DatasetRegistry {
 public:
  // Arguments: the section's keys, its name for error texts ("data.train"), and, for evaluation
  // data, the DataInfo of the training data (else null).
  using Factory = std::function<std::unique_ptr<Dataset>(
      const SourceOptions& options, const std::string& what, const DataInfo* train)>;

  DatasetRegistry();

  // Error if `kind` is registered already or `factory` is empty.
  void add(std::string kind, Factory factory);
  // Opens the dataset of options.kind. ConfigError for an unknown kind; DataError if an added
  // factory returns null or an empty dataset.
  std::unique_ptr<Dataset> open(const SourceOptions& options, const std::string& what,
                                const DataInfo* train = nullptr) const;
  std::vector<std::string> kinds() const;  // the added kinds, sorted

 private:
  std::map<std::string, Factory> factories_;
};

}  // namespace tanren
