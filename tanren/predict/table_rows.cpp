// Rows of texts and tables: CSV, TSV, JSON lines and plain lines, read line by line.
#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/predict/line_reader.h"
#include "tanren/predict/rows.h"
#include "tanren/predict/sample_columns.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace tanren {

namespace {

std::string place_of_line(const LineReader& lines, int64_t number) {
  return fmt::format("{}:{}", lines.name(), number);
}

// Whether the values of a JSON text lie in each other more deeply than can be written again.
bool nests_deeply(const std::string& json) {
  constexpr int kMost = 500;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < json.size() && depth <= kMost; ++i) {
    if (quoted && json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (json[i] == '[' || json[i] == '{')) {
      ++depth;
    } else if (!quoted && (json[i] == ']' || json[i] == '}')) {
      --depth;
    }
  }
  return depth > kMost;
}

// A sample a line.
class LineRows : public RowSource {
 public:
  LineRows(const std::filesystem::path& source, const RunConfig& config)
      : lines_(source, config.data.encoding) {
    columns_ = {config.data.eval.text};
  }

  bool next(Row& row) override {
    row = {};
    std::string line;
    if (!lines_.next(line)) return false;
    print_.add(line);
    row.place = place_of_line(lines_, lines_.number());
    row.cells = {{lines_.text(line, row.broken)}};
    row.sample.text = row.cells[0].text;
    if (row.broken.empty() && trimmed(row.sample.text).empty()) {
      row.broken = "the line is empty; fill it or drop it";
    }
    return true;
  }

 private:
  LineReader lines_;
};

// A header line, then a record a row; a record of a CSV may go over several lines.
class TableRows : public RowSource {
 public:
  TableRows(const std::filesystem::path& source, const RunConfig& config, const DataInfo& info)
      : lines_(source, config.data.encoding),
        separator_(source.extension() == ".tsv" ? '\t' : ','),
        sample_(config, info) {
    Row header;
    if (!take_record(header, columns_)) {
      throw DataError("[predict] " + lines_.name() +
                      " is empty; it needs a header line that names the columns");
    }
    const std::string where = "[predict] " + header.place;
    if (!header.broken.empty()) throw DataError(where + ": " + header.broken);
    for (auto& name : columns_) name = std::string(trimmed(name));
    auto sorted = columns_;
    std::sort(sorted.begin(), sorted.end());
    if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        twice != sorted.end()) {
      throw DataError(where + ": two columns are called \"" + one_line(*twice) + "\"; rename one");
    }
    sample_.bind(columns_, where);
  }

  bool next(Row& row) override {
    row = {};
    std::vector<std::string> cells;
    if (!take_record(row, cells)) return false;
    if (row.broken.empty() && cells.size() != columns_.size()) {
      row.broken = fmt::format("has {} cells, the header names {}{}", cells.size(), columns_.size(),
                               cells.size() < columns_.size()
                                   ? "; is the line cut off?"
                                   : "; put a text that holds commas into double quotes");
    }
    cells.resize(columns_.size());
    for (auto& cell : cells) row.cells.push_back({std::move(cell)});
    if (row.broken.empty()) sample_.read(row);
    return true;
  }

 private:
  // Lines without anything are no records.
  bool take_record(Row& row, std::vector<std::string>& cells) {
    constexpr size_t kLongest = size_t{16} << 20;
    std::string line;
    do {
      if (!lines_.next(line)) return false;
    } while (trimmed(line).empty());
    const int64_t first = lines_.number();
    row.place = place_of_line(lines_, first);
    std::string record = line, more;
    while (!split_record(record, separator_, cells, row.broken)) {
      const bool goes_on = record.size() < kLongest && lines_.next(more);
      if (!goes_on) {
        throw DataError(fmt::format(
            "[predict] {}: nothing closes a quote that this row opens; add it, or write quotes "
            "inside a cell twice (\"\")",
            row.place));
      }
      record += "\n" + more;
    }
    print_.add(record);
    const std::string text = lines_.text(record, row.broken);
    if (text != record) split_record(text, separator_, cells, row.broken);  // latin-1
    return true;
  }

  LineReader lines_;
  char separator_;
  SampleColumns sample_;
};

// An object a line.
class JsonRows : public RowSource {
 public:
  JsonRows(const std::filesystem::path& source, const RunConfig& config, const DataInfo& info)
      : lines_(source, config.data.encoding), sample_(config, info) {
    has_first_ = take(first_);
    if (!has_first_) throw DataError("[predict] " + lines_.name() + " is empty; it has no rows");
    if (first_.broken.empty()) sample_.bind(first_.names, "[predict] " + first_.place);
    columns_ = first_.names;
    read_sample(first_);
  }

  bool next(Row& row) override {
    if (!has_first_) {
      row = {};
      if (!take(row)) return false;
      read_sample(row);
      print_.add(line_);
      return true;
    }
    has_first_ = false;
    row = std::move(first_);
    print_.add(line_);
    return true;
  }

 private:
  void read_sample(Row& row) const {
    if (row.broken.empty()) sample_.read_by_name(row);
  }

  bool take(Row& row) {
    do {
      if (!lines_.next(line_)) return false;
    } while (trimmed(line_).empty());
    row.place = place_of_line(lines_, lines_.number());
    const std::string text = lines_.text(line_, row.broken);
    if (nests_deeply(text)) row.broken = "nests too deeply; write values that are flat";
    if (!row.broken.empty()) return true;
    const auto json = parse_ordered_json(text);
    if (json.is_discarded() || !json.is_object()) {
      row.broken = json.is_discarded() ? "is no JSON; fix the line, one object each"
                                       : "is no JSON object; write {\"text\": …} a line";
      return true;
    }
    for (const auto& [name, value] : json.items()) {
      row.names.push_back(name);
      row.cells.push_back(value.is_string() ? Cell{value.template get<std::string>()}
                                            : Cell{json_text(value), true});
    }
    return true;
  }

  LineReader lines_;
  SampleColumns sample_;
  std::string line_;
  Row first_;
  bool has_first_ = false;
};

}  // namespace

std::unique_ptr<RowSource> open_line_rows(const std::filesystem::path& source,
                                          const RunConfig& config) {
  return std::make_unique<LineRows>(source, config);
}

std::unique_ptr<RowSource> open_table_rows(const std::filesystem::path& source,
                                           const RunConfig& config, const DataInfo& info) {
  return std::make_unique<TableRows>(source, config, info);
}

std::unique_ptr<RowSource> open_json_rows(const std::filesystem::path& source,
                                          const RunConfig& config, const DataInfo& info) {
  return std::make_unique<JsonRows>(source, config, info);
}

}  // namespace tanren
