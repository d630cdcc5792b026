// DatasetRegistry: the kinds of data that a program adds to those of open_dataset, so that
// [data.train] and [data.eval] may name them. A plain value, no global; read-only use is
// thread-safe. Filled by an own binary before it runs, read by run/.
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

  // Error if `kind` is there already, tanren's own kinds included.
  void add(std::string kind, Factory factory);
  // The dataset of options.kind: a registered one, else open_dataset's, whose errors are its.
  // DataError if the factory returns none or an empty one.
  std::unique_ptr<Dataset> open(const SourceOptions& options, const std::string& what,
                                const DataInfo* train = nullptr) const;
  std::vector<std::string> kinds() const;  // registered ones, sorted

 private:
  std::map<std::string, Factory> factories_;
};

}  // namespace tanren
