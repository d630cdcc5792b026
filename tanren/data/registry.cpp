#include "tanren/data/registry.h"

#include "tanren/base/error.h"
#include "tanren/base/error_line.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
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
  if (!factory) throw Error("[data] kind '" + kind + "' has an empty factory; give a function");
  factories_.emplace(std::move(kind), std::move(factory));
}

std::unique_ptr<Dataset> DatasetRegistry::open(const SourceOptions& options,
                                               const std::string& what,
                                               const DataInfo* train) const {
  const auto found = factories_.find(options.kind);
  if (found == factories_.end()) return open_dataset(options, what, train);
  std::unique_ptr<Dataset> dataset;
  try {
    dataset = found->second(options, what, train);
  } catch (const Error&) {
    throw;
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    std::throw_with_nested(DataError("[" + what + "] kind '" + options.kind +
                                     "' could not be opened: " + line_of_current()));
  }
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
