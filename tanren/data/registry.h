// DatasetRegistry: the kinds of data that [data.train] and [data.eval] may name: the library's, and those
// that a program adds. A plain value, no global; read-only use is thread-safe. Filled by an own binary
// before it runs, read by run/.
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
  // Gets the section's keys, its name for error texts ("data.train"), and for evaluation data what
  // the training data are (else null).
  using Factory = std::function<std::unique_ptr<Dataset>(
      const SourceOptions& options, const std::string& what, const DataInfo* train)>;

  DatasetRegistry();

  // Error if `kind` is there already.
  void add(std::string kind, Factory factory);
  // The dataset of options.kind. ConfigError for a kind that is not there; DataError if an added factory
  // returns none or an empty one.
  std::unique_ptr<Dataset> open(const SourceOptions& options, const std::string& what,
                                const DataInfo* train = nullptr) const;
  std::vector<std::string> kinds() const;  // those that were added, sorted

 private:
  std::map<std::string, Factory> factories_;
};

}  // namespace tanren
