#include "tanren/data/text/text_rows.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/text/records.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tanren {

namespace {

using Json = nlohmann::json;

// Shared by both formats: the file, its errors, and the check of a row.
class Source {
 public:
  Source(const std::filesystem::path& path, const SourceOptions& options,
         const TextColumns& columns, const std::string& what)
      : columns(columns),
        options(options),
        lines(path, what, options.encoding, nullptr, kMostLineBytes),
        what_(what),
        path_(path.string()) {}

  [[noreturn]] void fail(int64_t line, const std::string& problem) const {
    throw DataError(fmt::format("[{}] {}:{}: {}", what_, path_, line, problem));
  }

  // Fails because there is no column `name`, for which `key` of this data section asks.
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
  const SourceOptions& options;
  LineReader lines;
  std::vector<TextRow> rows;

 private:
  std::string what_, path_;
};

// Checks and splits what was read of a record.
void split_whole(const Source& source, const RecordReader& records, RecordReader::Found found,
                 std::string& record, char delimiter, Cells& cells) {
  source.lines.make_text(record, records.line());
  if (found == RecordReader::Found::open_quote || !cells.split(record, delimiter)) {
    const std::string_view quoted = std::string_view(record).substr(records.quote_place() + 1, 40);
    source.fail(records.quote_line(), "nothing closes the quote of \"" +
                                          std::string(trimmed(quoted)) +
                                          "\"; add it, or write quotes inside a cell twice (\"\")");
  }
  if (!cells.problem().empty()) source.fail(records.line(), cells.problem());
}

void read_cells(Source& source, bool tabs) {
  RecordReader records(source.lines, /*skips_blank=*/false, kMostRecordBytes);
  const TextColumns& columns = source.columns;
  std::vector<std::string> wanted{columns.text};
  if (!columns.pair.empty()) wanted.push_back(columns.pair);
  if (!columns.label.empty()) wanted.push_back(columns.label);
  std::string record;
  if (!records.begin(record)) {
    source.fail(1, "the file is empty; it needs a header line that names the columns");
  }
  if (!tabs) records.complete_first_cell(record, source.options);
  std::string first = record;
  source.lines.make_text(first, records.line());
  const char delimiter = delimiter_of(first, source.options, tabs, wanted);
  Cells cells;
  split_whole(source, records, records.complete(record, delimiter), record, delimiter, cells);
  std::vector<std::string> header;
  for (const std::string_view name : cells) header.emplace_back(trimmed(name));
  const auto place_of = [&](const std::string& name, const char* key) {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end()) source.fail_column(records.line(), name, key, header);
    if (std::find(found + 1, header.end(), name) != header.end()) {
      source.fail(records.line(), "two columns are called \"" + name + "\"; rename one");
    }
    return static_cast<size_t>(found - header.begin());
  };
  const size_t text = place_of(columns.text, "text");
  const size_t pair = columns.pair.empty() ? 0 : place_of(columns.pair, "text_pair");
  const size_t label = columns.label.empty() ? 0 : place_of(columns.label, "label");
  for (;;) {
    const auto found = records.next(record, delimiter);
    if (found == RecordReader::Found::end) break;
    split_whole(source, records, found, record, delimiter, cells);
    if (cells.size() != header.size()) {
      source.fail(
          records.line(),
          fmt::format("has {}, the header names {}{}", counted(cells.size(), "cell"), header.size(),
                      cells.size() < header.size()
                          ? "; is the line cut off?"
                          : "; put a text that holds commas into double quotes"));
    }
    source.add({records.line(), std::string(cells[text]),
                columns.pair.empty() ? "" : std::string(cells[pair]),
                columns.label.empty() ? "" : std::string(cells[label])});
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
  std::string line;
  while (source.lines.next(line)) {
    const int64_t number = source.lines.number();
    source.lines.make_text(line, number);
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
                                    const std::string& what, const SourceOptions& options) {
  const std::string kind = path.extension().string();
  const bool is_json = kind == ".jsonl" || kind == ".ndjson";
  if (!is_json && kind != ".csv" && kind != ".tsv") {
    throw DataError("[" + what + "] " + path.string() +
                    " is of no kind that is read; rename it to .csv, .tsv or .jsonl");
  }
  Source source(path, options, columns, what);
  if (is_json) {
    read_json_lines(source);
  } else {
    read_cells(source, kind == ".tsv");
  }
  if (source.rows.empty()) source.fail(1, "there are no rows; add some");
  return std::move(source.rows);
}

}  // namespace tanren
