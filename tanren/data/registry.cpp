#include "tanren/data/registry.h"

#include "tanren/base/error.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tanren {

namespace {
constexpr std::array<std::string_view, 7> kOwn = {"csv",  "images",     "tensors", "synthetic",
                                                  "text", "text_table", "tokens"};
}  // namespace

void DatasetRegistry::add(std::string kind, Factory factory) {
  const bool is_own = std::find(kOwn.begin(), kOwn.end(), kind) != kOwn.end();
  if (is_own || factories_.count(kind) > 0) {
    throw Error("[data] kind '" + kind + "' is registered already; choose another name");
  }
  factories_.emplace(std::move(kind), std::move(factory));
}

std::unique_ptr<Dataset> DatasetRegistry::open(const SourceOptions& options,
                                               const std::string& what,
                                               const DataInfo* train) const {
  const auto found = factories_.find(options.kind);
  if (found == factories_.end()) return open_dataset(options, what, train);
  auto dataset = found->second(options, what, train);
  if (dataset == nullptr || dataset->size() < 1) {
    throw DataError("[" + what + "] kind '" + options.kind + "' gave no samples; give it some");
  }
  return dataset;
}

std::vector<std::string> DatasetRegistry::kinds() const {
  std::vector<std::string> names;
  for (const auto& [kind, factory] : factories_) names.push_back(kind);
  return names;
}

}  // namespace tanren
