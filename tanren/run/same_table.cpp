#include "tanren/run/same_table.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/log.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/table_json.h"
#include "tanren/interop/whole_model.h"
#include "tanren/run/origin.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kColumns = "columns of data.train";  // which older checkpoints do not have
constexpr const char* kTable = "columns and what was measured of data.train";
constexpr const char* kNames = "class names of data.train";

// The value of a fact; empty: there is none.
std::string fact_of(const Facts& facts, const std::string& name) {
  const auto found = std::find_if(facts.begin(), facts.end(),
                                  [&](const auto& fact) { return fact.first == name; });
  return found == facts.end() ? "" : found->second;
}

std::string text_of(const std::vector<std::string>& names) {
  return json_text(nlohmann::json(names));  // which a description has them as: they may be no UTF-8
}

std::string table_of(const DataInfo& info) {
  return info.table != nullptr ? json_text(table_json(*info.table)) : "";
}

// What differs between the training data that an exported model describes and `now`; empty:
// nothing. Old descriptions have no names of columns.
std::string other_part(const DataInfo& saved, const DataInfo& now) {
  const bool names_columns = !saved.feature_names.empty();
  if (names_columns && text_of(saved.feature_names) != text_of(now.feature_names)) return kColumns;
  if (table_of(saved) != table_of(now)) return kTable;
  return text_of(saved.class_names) != text_of(now.class_names) ? kNames : "";
}

// The same for the origin of a checkpoint.
std::string other_part(const Facts& saved, const Facts& now) {
  if (saved.empty()) return "";
  for (const char* name : {kTable, kNames, kColumns}) {
    const std::string before = fact_of(saved, name);
    if (name == kColumns && before.empty()) continue;
    if (before != fact_of(now, name)) return name;
  }
  return "";
}

}  // namespace

void check_same_table(const RunConfig& config, const Dataset& train, const fs::path& checkpoint,
                      const std::string& verb, const KnownKinds& known) {
  std::string other;
  if (fs::is_directory(checkpoint)) {
    other = other_part(read_origin(checkpoint).data, data_facts(train, nullptr));
  } else {
    const Metadata metadata = read_safetensors(checkpoint).metadata;
    if (!describes_model(metadata)) {
      log("[" + verb + "] " + checkpoint.string() +
          " does not say how its data were read, so it is not known whether data.train is still "
          "read so");
      return;
    }
    other = other_part(description_of(metadata, checkpoint, {}, known).info, train.info());
  }
  if (other.empty()) return;
  throw DataError("[" + verb + "] the " + other + " (" + config.data.train.path +
                  ") are not those that " + checkpoint.string() +
                  " was trained with; put those data back, or take the "
                  "model.tanren.safetensors of a finished run");
}

}  // namespace tanren
