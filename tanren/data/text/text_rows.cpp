#include "tanren/data/text/text_rows.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/text/encoding.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tanren {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Shared by both formats: the file, its errors, and the check of a row.
class Source {
 public:
  Source(const std::filesystem::path& path, const TextColumns& columns, std::string what,
         const std::string& encoding)
      : columns(columns),
        what_(std::move(what)),
        path_(path.string()),
        text_(decoded_text(read_file(path), encoding, "[" + what_ + "] " + path_)) {
    rest = text_;
    if (rest.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
      rest.remove_prefix(kByteOrderMark.size());
    }
  }

  [[noreturn]] void fail(int64_t line, const std::string& problem) const {
    throw DataError(fmt::format("[{}] {}:{}: {}", what_, path_, line, problem));
  }

  // `key` of this data section asks for column `name`.
  [[noreturn]] void fail_column(int64_t line, const std::string& name, const char* key,
                                std::vector<std::string> known) const {
    const size_t all = known.size();
    if (all > 8) known.resize(8);
    if (all > known.size()) known.emplace_back("…");
    fail(line,
         fmt::format("there is no column \"{}\"; the columns are {}; set {}.{} to one of them",
                     name, join(known), what_, key));
  }

  void check_cell(int64_t line, const std::string& column, const std::string& cell) const {
    if (!trimmed(cell).empty()) return;
    fail(line, "column " + column + " is empty; fill it or drop the row");
  }

  void add(TextRow row) {
    check_cell(row.line, columns.text, row.text);
    if (!columns.pair.empty()) check_cell(row.line, columns.pair, row.pair);
    row.label = std::string(trimmed(row.label));
    if (!columns.label.empty()) check_cell(row.line, columns.label, row.label);
    rows.push_back(std::move(row));
  }

  const TextColumns& columns;
  std::string_view rest;
  std::vector<TextRow> rows;

 private:
  std::string what_, path_, text_;
};

// Records of cells. A record of a CSV may go over several lines.
class Records {
 public:
  Records(Source& source, char separator)
      : source_(source), rest_(source.rest), separator_(separator) {}

  int64_t line() const { return line_; }  // where the last record began

  // False at the end of the file. Empty lines are no records.
  bool next(std::vector<std::string>& cells) {
    while (!rest_.empty() && (rest_.front() == '\n' || rest_.substr(0, 2) == "\r\n")) {
      take_line(rest_);
      ++next_line_;
    }
    if (rest_.empty()) return false;
    line_ = next_line_;
    cells.clear();
    do cells.push_back(take_cell());
    while (take_separator());
    return true;
  }

 private:
  // Moves past the separator after a cell; else past the line's end, and returns false.
  bool take_separator() {
    if (!rest_.empty() && rest_.front() == separator_) {
      rest_.remove_prefix(1);
      return true;
    }
    take_line(rest_);
    ++next_line_;
    return false;
  }

  std::string take_cell() {
    if (separator_ == ',') {
      const auto begin = std::min(rest_.find_first_not_of(" \t"), rest_.size());
      if (begin < rest_.size() && rest_[begin] == '"') {
        rest_.remove_prefix(begin + 1);
        return take_quoted();
      }
    }
    size_t end = std::min(rest_.find_first_of(separator_ == ',' ? ",\n" : "\t\n"), rest_.size());
    const size_t after = end;
    if (after < rest_.size() && rest_[after] == '\n' && end > 0 && rest_[end - 1] == '\r') --end;
    std::string cell(rest_.substr(0, end));
    rest_.remove_prefix(after);
    return cell;
  }

  // The opening quote was already taken.
  std::string take_quoted() {
    const int64_t opened = next_line_;
    std::string cell;
    for (;;) {
      const auto quote = rest_.find('"');
      if (quote == std::string_view::npos) {
        source_.fail(opened, "nothing closes the quote of \"" +
                                 std::string(trimmed(rest_.substr(0, 40))) +
                                 "\"; add it, or write quotes inside a cell twice (\"\")");
      }
      next_line_ += std::count(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(quote), '\n');
      cell += rest_.substr(0, quote);
      rest_.remove_prefix(quote + 1);
      if (rest_.empty() || rest_.front() != '"') break;
      cell += '"';
      rest_.remove_prefix(1);
    }
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
    if (!rest_.empty() && rest_.front() != ',' && rest_.front() != '\n') {
      source_.fail(
          opened,
          "a cell goes on after its closing quote with \"" +
              std::string(trimmed(rest_.substr(0, std::min<size_t>(rest_.find('\n'), 20)))) +
              "\"; write quotes inside a cell twice (\"\")");
    }
    return cell;
  }

  Source& source_;
  std::string_view rest_;
  char separator_;
  int64_t line_ = 1, next_line_ = 1;
};

void read_cells(Source& source, char separator) {
  Records records(source, separator);
  std::vector<std::string> header, cells;
  if (!records.next(header)) {
    source.fail(1, "the file is empty; it needs a header line that names the columns");
  }
  for (auto& name : header) name = std::string(trimmed(name));
  const auto place_of = [&](const std::string& name, const char* key) {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end()) source.fail_column(records.line(), name, key, header);
    if (std::find(found + 1, header.end(), name) != header.end()) {
      source.fail(records.line(), "two columns are called \"" + name + "\"; rename one");
    }
    return static_cast<size_t>(found - header.begin());
  };
  const TextColumns& columns = source.columns;
  const size_t text = place_of(columns.text, "text");
  const size_t pair = columns.pair.empty() ? 0 : place_of(columns.pair, "text_pair");
  const size_t label = columns.label.empty() ? 0 : place_of(columns.label, "label");
  while (records.next(cells)) {
    if (cells.size() != header.size()) {
      source.fail(records.line(),
                  fmt::format("has {} cells, the header names {}{}", cells.size(), header.size(),
                              cells.size() < header.size()
                                  ? "; is the line cut off?"
                                  : "; put a text that holds commas into double quotes"));
    }
    source.add({records.line(), cells[text], columns.pair.empty() ? "" : cells[pair],
                columns.label.empty() ? "" : cells[label]});
  }
}

// A JSON label as text: whole numbers without a fraction, whatever they were written with.
std::string label_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_float()) return to_text(value.get<double>());
  return value.is_number_integer() ? value.dump() : "";
}

void read_json_lines(Source& source) {
  std::string_view rest = source.rest;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const auto line = take_line(rest);
    if (trimmed(line).empty()) continue;
    Json json;
    try {
      json = Json::parse(line);
    } catch (const Json::exception& error) {
      source.fail(number, fmt::format("is no JSON (column {}); fix the line, one object each", [&] {
                    const auto* parse = dynamic_cast<const Json::parse_error*>(&error);
                    return parse != nullptr ? parse->byte : size_t{1};
                  }()));
    }
    if (!json.is_object()) source.fail(number, "is no JSON object; write {\"text\": …} a line");
    const auto value_of = [&](const std::string& name, const char* key) -> const Json& {
      const auto found = json.find(name);
      if (found != json.end()) return *found;
      std::vector<std::string> known;
      for (const auto& [column, value] : json.items()) known.push_back(column);
      source.fail_column(number, name, key, known);
    };
    const auto text_of = [&](const std::string& name, const char* key) {
      const Json& value = value_of(name, key);
      if (!value.is_string()) {
        // Names only the type: printing a value recurses as deep as the line nests.
        source.fail(number, "column " + name + " is of type " + value.type_name() +
                                ", no text; put it into quotes or drop the row");
      }
      return value.get<std::string>();
    };
    const TextColumns& columns = source.columns;
    TextRow row{number, text_of(columns.text, "text")};
    if (!columns.pair.empty()) row.pair = text_of(columns.pair, "text_pair");
    if (!columns.label.empty()) row.label = label_text(value_of(columns.label, "label"));
    source.add(std::move(row));
  }
}

}  // namespace

std::vector<TextRow> read_text_rows(const std::filesystem::path& path, const TextColumns& columns,
                                    const std::string& what, const std::string& encoding) {
  const std::string kind = path.extension().string();
  const bool is_json = kind == ".jsonl" || kind == ".ndjson";
  if (!is_json && kind != ".csv" && kind != ".tsv") {
    throw DataError("[" + what + "] " + path.string() +
                    " is of no kind that is read; rename it to .csv, .tsv or .jsonl");
  }
  Source source(path, columns, what, encoding);
  if (is_json) {
    read_json_lines(source);
  } else {
    read_cells(source, kind == ".csv" ? ',' : '\t');
  }
  if (source.rows.empty()) source.fail(1, "there are no rows; add some");
  return std::move(source.rows);
}

}  // namespace tanren
