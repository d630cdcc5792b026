#include "tanren/data/registry.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/kinds.h"

namespace tanren {

// The library's kinds of dataset, one source file each. `train` is null or the training data's
// info.
std::unique_ptr<Dataset> open_csv(const SourceOptions& options, const std::string& what,
                                  const DataInfo* train);
std::unique_ptr<Dataset> open_tensors(const SourceOptions& options, const std::string& what,
                                      const DataInfo* train);
std::unique_ptr<Dataset> open_images(const SourceOptions& options, const std::string& what,
                                     const DataInfo* train);
std::unique_ptr<Dataset> open_pairs(const SourceOptions& options, const std::string& what,
                                    const DataInfo* train);
std::unique_ptr<Dataset> open_synthetic(const SourceOptions& options, const std::string& what,
                                        const DataInfo* train);
std::unique_ptr<Dataset> open_text(const SourceOptions& options, const std::string& what,
                                   const DataInfo* train);
std::unique_ptr<Dataset> open_text_table(const SourceOptions& options, const std::string& what,
                                         const DataInfo* train);
std::unique_ptr<Dataset> open_tokens(const SourceOptions& options, const std::string& what,
                                     const DataInfo* train);

DatasetRegistry::DatasetRegistry()
    : factories_{{"csv", open_csv},       {"images", open_images},
                 {"pairs", open_pairs},   {"tensors", open_tensors},
                 {"text", open_text},     {"text_table", open_text_table},
                 {"tokens", open_tokens}, {"synthetic", open_synthetic}} {}

void DatasetRegistry::add(std::string kind, Factory factory) {
  if (factories_.count(kind) > 0) {
    throw Error("[data] kind '" + kind + "' is registered already; choose another name");
  }
  if (!factory) throw Error("[data] kind '" + kind + "' has an empty factory; give a function");
  factories_.emplace(std::move(kind), std::move(factory));
}

std::unique_ptr<Dataset> DatasetRegistry::open(const SourceOptions& options,
                                               const std::string& what,
                                               const DataInfo* train) const {
  const auto found = factories_.find(options.kind);
  if (found == factories_.end()) {
    Keys known = names_of(dataset_kinds());
    const std::string last = known.back();
    known.pop_back();
    throw ConfigError(fmt::format("[{}] there is no kind \"{}\"; set {}.kind to {} or {}", what,
                                  options.kind, what, join(known), last));
  }
  if (dataset_kind(options.kind) != nullptr) return found->second(options, what, train);
  std::unique_ptr<Dataset> dataset;
  try {
    dataset = found->second(options, what, train);
  } catch (...) {
    rethrow_known();
    std::throw_with_nested(DataError(fmt::format("[{}] kind '{}' could not be opened: {}", what,
                                                 options.kind, line_of_current())));
  }
  if (dataset == nullptr || dataset->size() < 1) {
    throw DataError("[" + what + "] kind '" + options.kind + "' gave no samples; give it some");
  }
  return dataset;
}

std::vector<std::string> DatasetRegistry::kinds() const {
  std::vector<std::string> names;
  for (const auto& [kind, factory] : factories_) {
    if (dataset_kind(kind) == nullptr) names.push_back(kind);
  }
  return names;
}

std::unique_ptr<Dataset> open_dataset(const SourceOptions& options, const std::string& what,
                                      const DataInfo* train) {
  return DatasetRegistry().open(options, what, train);
}

}  // namespace tanren
