#include "tanren/plan/print.h"

#include "tanren/base/json_text.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace tanren {

namespace {
const char* source_name(Source source) {
  switch (source) {
    case Source::asked: return "asked";
    case Source::by_default: return "default";
    case Source::planned: return "planned";
  }
  return "?";
}
}  // namespace

std::string plan_text(const Plan& plan) {
  int64_t key_width = 0, value_width = 0;
  for (const auto& line : plan.lines) {
    key_width = std::max(key_width, display_width(line.key));
    value_width = std::max(value_width, display_width(line.value));
  }
  std::string text;
  for (const auto& line : plan.lines) {
    text += fmt::format("{}  {}  {}  {}\n", padded(line.key, key_width),
                        padded(line.value, value_width), padded(source_name(line.source), 7),
                        line.reason);
  }
  return text;
}

std::string plan_json(const Plan& plan) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& line : plan.lines) {
    json[line.key] = {
        {"value", line.value}, {"source", source_name(line.source)}, {"reason", line.reason}};
  }
  return json_text(json, 2);
}

}  // namespace tanren
