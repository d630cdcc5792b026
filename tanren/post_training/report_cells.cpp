#include "tanren/post_training/report_cells.h"

#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/page/units.h"

#include <cmath>
#include <string_view>
#include <vector>

namespace tanren {

std::string outside_text(const std::string& text) {
  return text.empty() ? kUnknown : one_line(text);
}

std::string with_minus(const std::string& number) {
  return !number.empty() && number[0] == '-' ? "−" + number.substr(1) : number;
}

std::string digits_text(double value, int digits) {
  return std::isfinite(value) ? with_minus(short_text(value, digits)) : kUnknown;
}

std::string known_share(double share) {
  return std::isfinite(share) ? percent_text(share) : kUnknown;
}

std::string wrapped_text(const std::string& text, int64_t columns) {
  std::string result, line;
  const auto add = [&](const std::string& word) {
    if (!line.empty() && display_width(line) + 1 + display_width(word) > columns) {
      result += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  };
  std::string word;
  for (const char c : text) {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      add(word);
      word.clear();
    }
  }
  if (!word.empty()) add(word);
  return result + line;
}

std::string middle_left_out(const std::string& text, size_t most) {
  std::vector<std::string_view> characters;
  for (std::string_view rest = text; !rest.empty();) {
    characters.push_back(rest.substr(0, first_character(rest).size));
    rest.remove_prefix(characters.back().size());
  }
  if (characters.size() <= most) return text;
  const size_t tail = most / 2, head = most - 1 - tail;
  std::string result;
  for (size_t i = 0; i < head; ++i) result += characters[i];
  result += "…";
  for (size_t i = characters.size() - tail; i < characters.size(); ++i) result += characters[i];
  return result;
}

void add_note(Table& table, const std::string& line) {
  if (line.empty()) return;
  if (!table.note.empty()) table.note += "\n";
  table.note += wrapped_text(line, kReportColumns - 2);
}

}  // namespace tanren
