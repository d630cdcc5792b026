// Rows of texts and tables: CSV, TSV, JSON lines and plain lines, read line by line.
#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/text/line_reader.h"
#include "tanren/data/text/records.h"
#include "tanren/predict/row_window.h"
#include "tanren/predict/rows.h"
#include "tanren/predict/sample_columns.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <deque>
#include <utility>

namespace tanren {

namespace {

constexpr size_t kLongestLine = size_t{64} << 20;

std::string place_of_line(const LineReader& lines, int64_t number) {
  return fmt::format("{}:{}", lines.name(), number);
}

// Why a JSON text is not parsed; empty: it is parsed. Values that are nested too deeply could not
// be written again. The time for an object grows with the square of its number of keys.
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

// The values of a valid JSON object, in their order, as they are written except for the blanks
// around tokens: numbers keep every digit.
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
      : lines_(source, "predict", config.data.encoding, stop, kLongestLine) {
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
  bool is_ready() override { return lines_.is_ready(); }

 private:
  LineReader lines_;
};

// A header line, then a record a row; a record of a CSV may go over several lines.
class TableRows : public RowSource {
 public:
  TableRows(const std::filesystem::path& source, const RunConfig& config, const DataInfo& info,
            const std::atomic<bool>* stop)
      : lines_(source, "predict", config.data.encoding, stop, kLongestLine),
        records_(lines_, /*skips_blank=*/config.data.eval.kind == "csv", kLongestRecord),
        sample_(config, info) {
    std::string record, broken;
    if (!records_.begin(record)) {
      throw DataError("[predict] " + lines_.name() +
                      " is empty; it needs a header line that names the columns");
    }
    const std::string where = "[predict] " + place_of_line(lines_, records_.line());
    if (!is_tsv(source)) records_.complete_first_cell(record, config.data.eval);
    delimiter_ = delimiter_of(lines_.text(record, broken), config.data.eval, is_tsv(source),
                              sample_.names(), sample_.decimal() == ",");
    Cells cells;
    take_cells(records_.complete(record, delimiter_), record, cells, broken);
    if (!broken.empty()) throw DataError(where + ": " + broken);
    for (const std::string_view name : cells) columns_.emplace_back(trimmed(name));
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
    std::string record;
    const auto found = records_.next(record, delimiter_);
    if (found == RecordReader::Found::end) return false;
    row.place = place_of_line(lines_, records_.line());
    Cells cells;
    take_cells(found, record, cells, row.broken);
    if (row.broken.empty() && cells.size() != columns_.size()) {
      row.broken = fmt::format(
          "has {}, the header names {}{}", counted(cells.size(), "cell"), columns_.size(),
          cells.size() < columns_.size() ? "; is the line cut off?"
                                         : "; put a text that holds commas into double quotes");
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      row.cells.push_back({i < cells.size() ? std::string(cells[i]) : std::string()});
    }
    sample_.read(row);
    return true;
  }
  bool is_ready() override { return lines_.is_ready(); }
  std::string unknown_text() const override { return sample_.unknown_text(); }

 private:
  static constexpr size_t kLongestRecord = size_t{16} << 20;

  // Splits the record, which becomes UTF-8.
  void take_cells(RecordReader::Found found, std::string& record, Cells& cells,
                  std::string& broken) {
    if (found == RecordReader::Found::open_quote) {
      throw DataError(fmt::format(
          "[predict] {}: nothing closes a quote that this row opens; add it, or write quotes "
          "inside a cell twice (\"\")",
          place_of_line(lines_, records_.line())));
    }
    print_.add(record);
    record = lines_.text(record, broken);
    cells.split(record, delimiter_);
    if (broken.empty()) broken = cells.problem();
  }

  LineReader lines_;
  RecordReader records_;
  char delimiter_ = ',';
  SampleColumns sample_;
};

// An object a line.
class JsonRows : public RowSource {
 public:
  JsonRows(const std::filesystem::path& source, const RunConfig& config, const DataInfo& info,
           const std::atomic<bool>* stop)
      : lines_(source, "predict", config.data.encoding, stop, kLongestLine), sample_(config, info) {
    // The first row that is sound has the columns.
    const bool skips = config.predict.broken == "skip";
    size_t bytes = 0;
    for (Row row; ahead_.empty() || (skips && !ahead_.back().row.broken.empty());) {
      if (!take(row)) break;
      bytes += sizeof(Ahead) + row.place.size() + row.broken.size() + line_.size();
      if (bytes > static_cast<size_t>(kWindowBytes)) {
        throw DataError(
            fmt::format("[predict] {}: none of its first {} rows is sound ({}); is it "
                        "of JSON lines?",
                        lines_.name(), ahead_.size() + 1, row.broken));
      }
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
  bool is_ready() override { return !ahead_.empty() || lines_.is_ready(); }
  std::string unknown_text() const override { return sample_.unknown_text(); }

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
