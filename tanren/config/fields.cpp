#include "tanren/config/fields.h"

#include <algorithm>

namespace tanren {

void FieldList::operator()(const char* name, Member member, Identity identity, const char* help,
                           TextKind text) {
  fields.push_back({prefix + name, member, {identity, help, text}});
}

std::vector<Field> fields_of(RunConfig& config) {
  FieldList list;
  const auto section = [&](const std::string& name, auto& options) {
    list.prefix = name + ".";
    fields(list, options);
  };
  section("run", config.run);
  section("model", config.model);
  section("data", config.data);
  section("data.train", config.data.train);
  const auto eval = std::ssize(list.fields);
  section("data.eval", config.data.eval);
  // Data for evaluation does not change training, and its fingerprint detects changes.
  for (auto field = list.fields.begin() + eval; field != list.fields.end(); ++field) {
    Identity& identity = field->info.identity;
    const bool is_transform = field->key == "data.eval.scale" || field->key == "data.eval.offset";
    if (identity == Identity::defines) identity = Identity::evaluates;
    if (is_transform) identity = Identity::free;
  }
  section("batch", config.batch);
  section("precision", config.precision);
  section("optimizer", config.optimizer);
  section("schedule", config.schedule);
  section("clip", config.clip);
  for (auto& [name, own] : config.objectives) {
    const std::string table = "objectives." + name;
    section(table, own);
    section(table + ".optimizer", own.optimizer);
    section(table + ".schedule", own.schedule);
    section(table + ".clip", own.clip);
  }
  section("guard", config.guard);
  section("memory", config.memory);
  section("parallel", config.parallel);
  section("average", config.average);
  section("evaluate", config.evaluate);
  section("early_stop", config.early_stop);
  section("checkpoint", config.checkpoint);
  section("metrics", config.metrics);
  section("generate", config.generate);
  section("predict", config.predict);
  section("quantize", config.quantize);
  section("sweep", config.sweep);
  return list.fields;
}

const Field* find_field(const std::vector<Field>& fields, std::string_view key) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& field) { return field.key == key; });
  return found == fields.end() ? nullptr : &*found;
}

std::vector<std::string> keys_of(const std::vector<Field>& fields) {
  std::vector<std::string> keys;
  keys.reserve(fields.size());
  for (const Field& field : fields) keys.push_back(field.key);
  return keys;
}

bool is_table_list(const Field& field) {
  return field.is<std::vector<GroupOptions>>() || field.is<std::vector<UnfreezeOptions>>() ||
         field.is<std::vector<DimensionOptions>>();
}

std::vector<Field> append_table(const Field& list) {
  const auto append = [&](auto& tables) {
    return fields_of(tables.emplace_back(), list.key + ".");
  };
  if (list.is<std::vector<GroupOptions>>()) return append(list.as<std::vector<GroupOptions>>());
  if (list.is<std::vector<UnfreezeOptions>>()) {
    return append(list.as<std::vector<UnfreezeOptions>>());
  }
  if (list.is<std::vector<DimensionOptions>>()) {
    return append(list.as<std::vector<DimensionOptions>>());
  }
  return {};
}

}  // namespace tanren
