#include "tanren/plan/print.h"

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

std::string padded(const std::string& text, size_t width) {
  return text + std::string(width > text.size() ? width - text.size() : 0, ' ');
}
}  // namespace

std::string plan_text(const Plan& plan) {
  size_t key_width = 0, value_width = 0;
  for (const auto& line : plan.lines) {
    key_width = std::max(key_width, line.key.size());
    value_width = std::max(value_width, line.value.size());
  }
  std::string text;
  for (const auto& line : plan.lines) {
    text += padded(line.key, key_width) + "  " + padded(line.value, value_width) + "  " +
            padded(source_name(line.source), 7) + "  " + line.reason + "\n";
  }
  return text;
}

std::string plan_json(const Plan& plan) {
  auto json = nlohmann::ordered_json::object();
  for (const auto& line : plan.lines) {
    json[line.key] = {
        {"value", line.value}, {"source", source_name(line.source)}, {"reason", line.reason}};
  }
  return json.dump(2);
}

}  // namespace tanren
