#include "tanren/anatomy/report_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace tanren {

namespace {

constexpr size_t kTextOperators = 20, kTextNodes = 10;

// Columns that a terminal shows it in: bytes that begin a character.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return left ? text + space : space + text;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool is_text(const Table& table, size_t column) {
  return column < table.texts || (table.remarks && column + 1 == table.head.size());
}

std::string text_of(const Table& table) {
  std::string text = upper(table.title) + "\n";
  std::vector<size_t> widths;
  for (const auto& cell : table.head) widths.push_back(width_of(cell));
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) {
      line += (i == 0 ? " " : "  ") + padded(row[i], widths[i], is_text(table, i));
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

}  // namespace

std::string anatomy_text(const Anatomy& anatomy) {
  std::string text;
  for (const auto& line : subject_lines(anatomy)) text += line + "\n";
  for (const Table& table :
       {step_table(anatomy), class_table(anatomy), operator_table(anatomy, kTextOperators),
        node_table(anatomy, kTextNodes), block_table(anatomy), stage_table(anatomy),
        memory_table(anatomy), prediction_table(anatomy)}) {
    text += "\n" + text_of(table);
  }
  if (anatomy.tried.empty()) return text;
  text += "\nADVICE, each measured by a run\n";
  for (const auto& line : advice_lines(anatomy)) text += "  " + line + "\n";
  if (anatomy.advice.empty()) text += "  nothing that was tried helps\n";
  return text + fmt::format("  tried: {}\n", fmt::join(anatomy.tried, ", "));
}

}  // namespace tanren
