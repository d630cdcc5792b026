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
#include <deque>
#include <utility>

namespace tanren {

namespace {

std::string place_of_line(const LineReader& lines, int64_t number) {
  return fmt::format("{}:{}", lines.name(), number);
}

// Why a JSON text is not parsed: values that lie in each other too deeply could not be written
// again, and the time of an object grows with the square of its keys. Empty: it is.
std::string problem_of_shape(const std::string& json) {
  constexpr size_t kMostDeep = 500, kMostKeys = 20'000;
  std::vector<size_t> keys;  // of each value that is open
  bool quoted = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (quoted && json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (json[i] == '[' || json[i] == '{')) {
      keys.push_back(0);
      if (keys.size() > kMostDeep) return "nests too deeply; write values that are flat";
    } else if (!quoted && !keys.empty() && (json[i] == ']' || json[i] == '}')) {
      keys.pop_back();
    } else if (!quoted && !keys.empty() && json[i] == ':' && ++keys.back() > kMostKeys) {
      return fmt::format("has an object of more than {} keys; write the rows as a .csv", kMostKeys);
    }
  }
  return "";
}

// The values of a JSON object that is known to be sound, in their order, as they stand there but
// for the blanks around tokens: numbers keep every digit.
std::vector<std::string> values_as_written(const std::string& json) {
  std::vector<std::string> values;
  int depth = 0;
  bool quoted = false, in_value = false;
  const auto put = [&](char c) {
    if (in_value) values.back() += c;
  };
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (quoted) {
      put(c);
      if (c == '\\') put(json[++i]);
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
      put(c);
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      continue;
    } else if (depth == 1 && (c == ':' || c == ',' || c == '}')) {
      in_value = c == ':';
      if (in_value) values.emplace_back();
      depth -= c == '}' ? 1 : 0;
    } else {
      put(c);
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    }
  }
  return values;
}

// A sample a line.
class LineRows : public RowSource {
 public:
  LineRows(const std::filesystem::path& source, const RunConfig& config,
           const std::atomic<bool>* stop)
      : lines_(source, config.data.encoding, stop) {
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
  TableRows(const std::filesystem::path& source, const RunConfig& config, const DataInfo& info,
            const std::atomic<bool>* stop)
      : lines_(source, config.data.encoding, stop),
        separator_(ending_of(source) == ".tsv" ? '\t' : ','),
        skips_blank_(config.data.eval.kind == "csv"),
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
  // Lines without anything are no records, as in the files of training.
  bool take_record(Row& row, std::vector<std::string>& cells) {
    constexpr size_t kLongest = size_t{16} << 20;
    std::string line;
    do {
      if (!lines_.next(line)) return false;
    } while (line.empty() || (skips_blank_ && trimmed(line).empty()));
    const int64_t first = lines_.number();
    row.place = place_of_line(lines_, first);
    std::string record = line;
    OpenQuote quote;
    while (separator_ == ',' && quote.at_end_of(record)) {
      record += lines_.ending();
      const bool goes_on = record.size() < kLongest && lines_.next(line);
      if (!goes_on) {
        throw DataError(fmt::format(
            "[predict] {}: nothing closes a quote that this row opens; add it, or write quotes "
            "inside a cell twice (\"\")",
            row.place));
      }
      record += line;
    }
    split_record(record, separator_, cells, row.broken);
    print_.add(record);
    const std::string text = lines_.text(record, row.broken);
    if (text != record) split_record(text, separator_, cells, row.broken);  // latin-1
    return true;
  }

  LineReader lines_;
  char separator_;
  bool skips_blank_;
  SampleColumns sample_;
};

// An object a line.
class JsonRows : public RowSource {
 public:
  JsonRows(const std::filesystem::path& source, const RunConfig& config, const DataInfo& info,
           const std::atomic<bool>* stop)
      : lines_(source, config.data.encoding, stop), sample_(config, info) {
    // The first row that is sound has the columns.
    const bool skips = config.predict.broken == "skip";
    for (Row row; ahead_.empty() || (skips && !ahead_.back().row.broken.empty());) {
      if (!take(row)) break;
      ahead_.push_back({std::exchange(row, {}), line_});
    }
    if (ahead_.empty()) throw DataError("[predict] " + lines_.name() + " is empty; it has no rows");
    const Row& first = ahead_.back().row;
    if (first.broken.empty()) sample_.bind(first.names, "[predict] " + first.place);
    columns_ = first.names;
  }

  bool next(Row& row) override {
    row = {};
    if (!ahead_.empty()) {
      row = std::move(ahead_.front().row);
      print_.add(ahead_.front().line);
      ahead_.pop_front();
    } else if (take(row)) {
      print_.add(line_);
    } else {
      return false;
    }
    if (row.broken.empty()) sample_.read_by_name(row);
    return true;
  }

 private:
  struct Ahead {
    Row row;
    std::string line;
  };

  bool take(Row& row) {
    do {
      if (!lines_.next(line_)) return false;
    } while (trimmed(line_).empty());
    row.place = place_of_line(lines_, lines_.number());
    const std::string text = lines_.text(line_, row.broken);
    if (row.broken.empty()) row.broken = problem_of_shape(text);
    if (!row.broken.empty()) return true;
    const auto json = parse_ordered_json(text);
    if (json.is_discarded() || !json.is_object()) {
      row.broken = json.is_discarded() ? "is no JSON; fix the line, one object each"
                                       : "is no JSON object; write {\"text\": …} a line";
      return true;
    }
    const auto written = values_as_written(text);
    const bool is_plain = written.size() == json.size();  // no name is there twice
    for (const auto& [name, value] : json.items()) {
      const size_t place = row.names.size();
      row.names.push_back(name);
      row.cells.push_back(value.is_string() ? Cell{value.template get<std::string>()}
                          : is_plain        ? Cell{written[place], true}
                                            : Cell{json_text(value), true});
    }
    return true;
  }

  LineReader lines_;
  SampleColumns sample_;
  std::string line_;
  std::deque<Ahead> ahead_;  // read, and not yet handed out
};

}  // namespace

std::unique_ptr<RowSource> open_line_rows(const std::filesystem::path& source,
                                          const RunConfig& config, const std::atomic<bool>* stop) {
  return std::make_unique<LineRows>(source, config, stop);
}

std::unique_ptr<RowSource> open_table_rows(const std::filesystem::path& source,
                                           const RunConfig& config, const DataInfo& info,
                                           const std::atomic<bool>* stop) {
  return std::make_unique<TableRows>(source, config, info, stop);
}

std::unique_ptr<RowSource> open_json_rows(const std::filesystem::path& source,
                                          const RunConfig& config, const DataInfo& info,
                                          const std::atomic<bool>* stop) {
  return std::make_unique<JsonRows>(source, config, info, stop);
}

}  // namespace tanren
