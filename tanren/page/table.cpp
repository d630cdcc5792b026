#include "tanren/page/table.h"

#include "tanren/base/text.h"
#include "tanren/page/report_page.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

namespace tanren {

namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool is_number(const Table& table, size_t column) {
  return column >= table.texts && !(table.remarks && column + 1 == table.head.size());
}

std::string cell(const char* tag, const std::string& text, bool number) {
  return fmt::format("<{}{}{}</{}>", tag, number ? " class=\"n\">" : ">", escaped(text), tag);
}

// A bar of `share` of the full length.
std::string bar_cell(double share) {
  return fmt::format(
      "<td><svg viewBox=\"0 0 100 9\" style=\"width:100px;margin:0\"><rect width=\"{:.1f}\" "
      "height=\"9\" fill=\"#222\"/></svg></td>",
      100 * share);
}

}  // namespace

std::string text_of(const Table& table) {
  std::string text = upper(table.title) + "\n";
  std::vector<int64_t> widths;
  for (const auto& cell : table.head) widths.push_back(display_width(cell));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space = padded("", widths[i] - display_width(row[i]));
      line += (i == 0 ? " " : "  ") + (is_number(table, i) ? space + row[i] : row[i] + space);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  if (!table.rows.empty()) {
    add(table.head);
    for (const auto& row : table.rows) add(row);
  }
  std::string note = table.note;
  for (size_t at = 0; !note.empty() && at != std::string::npos;) {
    const size_t end = note.find('\n', at);
    text += "  " + note.substr(at, end == std::string::npos ? end : end - at) + "\n";
    at = end == std::string::npos ? end : end + 1;
  }
  return text;
}

std::string html_of(const Table& table) {
  std::string html = "<section><h2>" + escaped(table.title) + "</h2>\n";
  if (!table.rows.empty()) {
    html += "<table><thead><tr>";
    for (size_t i = 0; i < table.head.size(); ++i) {
      html += cell("th", table.head[i], is_number(table, i));
    }
    if (!table.bars.empty()) html += "<th></th>";
    html += "</tr></thead><tbody>\n";
    for (size_t at = 0; at < table.rows.size(); ++at) {
      const auto& row = table.rows[at];
      html += "<tr>";
      for (size_t i = 0; i < row.size(); ++i) html += cell("td", row[i], is_number(table, i));
      if (!table.bars.empty()) html += bar_cell(table.bars[at]);
      html += "</tr>\n";
    }
    html += "</tbody></table>\n";
  }
  if (!table.note.empty()) html += "<p class=\"note\">" + escaped(table.note) + "</p>\n";
  return html + "</section>\n";
}

}  // namespace tanren
