#include "tanren/run/same_table.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/log.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/table_json.h"
#include "tanren/run/origin.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tanren {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;

constexpr const char* kColumns = "columns of data.train";  // which older checkpoints do not have
constexpr const char* kTable = "columns and what was measured of data.train";
constexpr const char* kNames = "class names of data.train";

// The value of a fact; empty: there is none.
std::string fact_of(const Facts& facts, const std::string& name) {
  const auto found = std::find_if(facts.begin(), facts.end(),
                                  [&](const auto& fact) { return fact.first == name; });
  return found == facts.end() ? "" : found->second;
}

// The description of the training data in an exported model (describe_model); null if it is not
// usable. Untrusted: it is only compared, never copied or printed.
Json described_data(const Metadata& metadata) {
  const auto found = metadata.find("tanren.data");
  if (found == metadata.end()) return nullptr;
  Json data = parse_json(found->second);
  const auto is_sound = [&](const char* key, bool is_array) {
    const auto part = data.find(key);  // end() if it is no object
    return part == data.end() || (is_array ? part->is_array() : part->is_object());
  };
  const bool is_usable = data.is_object() && is_sound("feature_names", true) &&
                         is_sound("class_names", true) && is_sound("table", false);
  if (!is_usable) return nullptr;
  return data;
}

// The part of the description `saved` that differs from `now`; empty: none. Old descriptions have
// no names of columns.
std::string other_part(const Json& saved, const DataInfo& now) {
  const auto is_other = [&](const char* key, const Json& mine) {
    const auto found = saved.find(key);
    return found != saved.end() && *found != parse_json(json_text(mine));
  };
  const bool names_columns = saved.contains("feature_names") && !saved["feature_names"].empty();
  if (names_columns && is_other("feature_names", now.feature_names)) return kColumns;
  const Json table = now.table != nullptr ? table_json(*now.table) : Json();
  if (is_other("table", table) || saved.contains("table") != table.is_object()) return kTable;
  return is_other("class_names", now.class_names) ? kNames : "";
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
                      const std::string& verb) {
  std::string other;
  if (fs::is_directory(checkpoint)) {
    other = other_part(read_origin(checkpoint).data, data_facts(train, nullptr));
  } else {
    const Json saved = described_data(read_safetensors(checkpoint).metadata);
    if (saved.is_null()) {
      log("[" + verb + "] " + checkpoint.string() +
          " does not say how its data were read, so it is not known whether data.train is still "
          "read so");
      return;
    }
    other = other_part(saved, train.info());
  }
  if (other.empty()) return;
  throw DataError("[" + verb + "] the " + other + " (" + config.data.train.path +
                  ") are not those that " + checkpoint.string() +
                  " was trained with; put those data back, or take the "
                  "model.tanren.safetensors of a finished run");
}

}  // namespace tanren
