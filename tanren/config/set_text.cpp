#include "tanren/config/set_text.h"

#include "tanren/base/text.h"

#include "tanren/base/names.h"
#include "tanren/config/value_text.h"

namespace tanren {

namespace {

bool is_quoted(const std::string& value) {
  const char first = value.empty() ? ' ' : value.front();
  return value.size() > 1 && (first == '"' || first == '\'') && value.back() == first;
}

}  // namespace

std::vector<std::string> list_items(std::string_view value) {
  const std::string list(trimmed(value));
  if (list.size() < 2 || list.front() != '[' || list.back() != ']') return {};
  std::vector<std::string> items;
  std::string item;
  int depth = 0;
  char quote = 0;
  for (const char c : std::string_view(list).substr(1, list.size() - 2)) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[') {
      ++depth;
    } else if (c == ']') {
      --depth;
    } else if (c == ',' && depth == 0) {
      items.emplace_back(trimmed(item));
      item.clear();
      continue;
    }
    item += c;
  }
  if (!trimmed(item).empty() || !items.empty()) items.emplace_back(trimmed(item));
  return items;
}

std::string as_toml_text(const std::string& value) {
  return is_quoted(value) ? value : toml_text(value);
}

std::string as_toml_list(const std::string& value) {
  std::vector<std::string> items = list_items(value);
  if (items.empty()) return value;
  for (auto& item : items) item = as_toml_text(item);
  return "[" + join(items) + "]";
}

// Dots outside keys count too, because quotes are not recognised, so the bound is far above the
// dots in normal texts. A chain of k dots without =,[]{} or a line end between them counts k - 1; a
// plain float counts 0.
bool has_deep_keys(std::string_view text) {
  constexpr int64_t kMostDots = 1000;
  int64_t dots = 0;
  bool in_chain = false;
  char before = 0;
  for (const char c : text) {
    if (c == '.') {
      if (in_chain && before != '.') ++dots;
      in_chain = true;
    } else if (std::string_view("=,[]{}\n").find(c) != std::string_view::npos) {
      in_chain = false;
    }
    before = c;
  }
  return dots > kMostDots;
}

}  // namespace tanren
