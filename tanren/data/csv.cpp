// csv: a header line, one label column by name, every other column a number. Read once, into one
// tensor of inputs [rows, shape…] and one of labels [rows].
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/data/dataset.h"
#include "tanren/data/only_classes.h"
#include "tanren/data/split.h"
#include "tanren/data/text/encoding.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include <ATen/ATen.h>

namespace tanren {

namespace {

// Splits off the next cell and the comma after it; quotes are taken off ("" inside is one quote).
std::string take_cell(std::string_view& line) {
  line = line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
  std::string cell;
  size_t end = 0;
  if (!line.empty() && line.front() == '"') {
    for (end = 1; end < line.size(); ++end) {
      if (line[end] != '"') {
        cell += line[end];
      } else if (end + 1 < line.size() && line[end + 1] == '"') {
        cell += line[++end];
      } else {
        break;
      }
    }
    end = std::min(line.find(',', end), line.size());
  } else {
    end = std::min(line.find(','), line.size());
    cell = trimmed(line.substr(0, end));
  }
  line.remove_prefix(std::min(end + 1, line.size()));
  return cell;
}

class CsvReader {
 public:
  CsvReader(const SourceOptions& options, const std::string& what)
      : options_(options),
        what_(what),
        text_(decoded_text(read_file(options.path), options.encoding,
                           "[" + what + "] " + options.path)) {}

  std::unique_ptr<Dataset> read() {
    std::string_view rest = text_;
    if (rest.substr(0, 3) == "\xEF\xBB\xBF") rest.remove_prefix(3);  // byte order mark
    read_header(take_line(rest));
    const std::vector<int64_t> shape = checked_shape();
    const auto width = static_cast<int64_t>(columns_.size()) - 1;
    // Each cell of a row takes at least one character and one separator.
    const auto longest =
        std::min(std::count(rest.begin(), rest.end(), '\n') + 1,
                 static_cast<std::ptrdiff_t>(rest.size() / columns_.size() / 2 + 1));
    at::Tensor inputs = at::empty({longest, width}, at::kFloat);
    float* row = inputs.mutable_data_ptr<float>();
    for (int64_t line_number = 2; !rest.empty(); ++line_number) {
      const auto line = take_line(rest);
      if (trimmed(line).empty()) continue;
      check_cells(line, line_number);
      read_row(line, line_number, row);
      if (options_.split > 0) hashes_.push_back(split_hash(trimmed(line)));
      row += width;
    }
    if (labels_.empty()) fail(1, "there are no rows below the header; add some");
    return make(inputs.narrow(0, 0, static_cast<int64_t>(labels_.size())), shape);
  }

 private:
  [[noreturn]] void fail(int64_t line, const std::string& problem) const {
    throw DataError(fmt::format("[{}] {}:{}: {}", what_, options_.path, line, problem));
  }

  void read_header(std::string_view line) {
    if (trimmed(line).empty()) {
      fail(1,
           "the file is empty or starts with an empty line; it needs a header line that names "
           "the columns");
    }
    const bool open_end = trimmed(line).back() == ',';
    while (!line.empty()) columns_.push_back(take_cell(line));
    if (open_end) columns_.emplace_back();
    const auto found = std::find(columns_.begin(), columns_.end(), options_.label);
    if (found == columns_.end()) {
      std::vector<std::string> shown(
          columns_.begin(), columns_.begin() + std::min<std::ptrdiff_t>(8, columns_.size()));
      if (columns_.size() > shown.size()) shown.emplace_back("…");
      const bool one =
          columns_.size() == 1 && columns_[0].find_first_of(";\t") != std::string::npos;
      double number = 0;
      const auto& first = columns_.front();
      const auto parsed = std::from_chars(first.data(), first.data() + first.size(), number);
      const bool headless = parsed.ec == std::errc() && parsed.ptr == first.data() + first.size();
      fail(1, "there is no column \"" + options_.label + "\"; the columns are " + join(shown) +
                  (one        ? "; cells are separated by commas"
                   : headless ? "; is there a header line that names the columns?"
                              : "; set " + what_ + ".label to one of them"));
    }
    label_column_ = static_cast<size_t>(found - columns_.begin());
    if (std::find(found + 1, columns_.end(), options_.label) != columns_.end()) {
      fail(1, "two columns are called \"" + options_.label + "\"; rename one");
    }
    if (columns_.size() < 2) fail(1, "there is no feature column beside the label; add some");
  }

  std::vector<int64_t> checked_shape() const {
    const auto width = static_cast<int64_t>(columns_.size()) - 1;
    if (options_.shape.empty()) return {width};
    std::vector<std::string> sizes;
    double product = 1;
    for (const auto size : options_.shape) {
      product *= static_cast<double>(size);
      sizes.push_back(to_text(size));
    }
    const bool positive = *std::min_element(options_.shape.begin(), options_.shape.end()) > 0;
    if (!positive || product != static_cast<double>(width)) {
      fail(1,
           fmt::format("there are {} feature columns, {}.shape = [{}] asks for {}; make them agree",
                       width, what_, join(sizes), to_text(product)));
    }
    return options_.shape;
  }

  // Checks that the line has as many cells as columns. With quoted commas the count is only an
  // upper bound; read_row checks those lines.
  void check_cells(std::string_view line, int64_t number) const {
    const auto cells = static_cast<size_t>(std::count(line.begin(), line.end(), ',')) + 1;
    if (cells == columns_.size()) return;
    if (cells > columns_.size() && line.find('"') != std::string_view::npos) return;
    fail(number,
         fmt::format("has {} cells, the header names {}{}", cells, columns_.size(),
                     cells < columns_.size() ? "; is the line cut off?" : "; drop the extra ones"));
  }

  void read_row(std::string_view line, int64_t number, float* row) {
    const char* at = line.data();
    const char* const end = at + line.size();
    for (size_t column = 0; column < columns_.size(); ++column) {
      double value = 0;
      const char* const start = at;
      at = parse(at, end, value);
      if (at == nullptr || !std::isfinite(value)) {
        fail_cell(std::string_view(start, static_cast<size_t>(end - start)), number, column);
      }
      if (column == label_column_) {
        labels_.push_back(checked_label(value, number));
      } else {
        *row = static_cast<float>(value * options_.scale + options_.offset);
        if (!std::isfinite(*row)) {
          fail(number,
               fmt::format(
                   "column {}: {} (times {}.scale) is too large for a 32-bit float; scale it down",
                   columns_[column], to_text(value), what_));
        }
        ++row;
      }
      if (at < end) ++at;  // the comma
    }
    if (at < end) fail(number, "has more cells than the header; drop the extra ones");
  }

  // Reads a number that may be quoted; returns the place of the comma or `end` after it, null if it
  // is not a number.
  static const char* parse(const char* at, const char* end, double& value) {
    const auto skip_blanks = [&] {
      while (at < end && (*at == ' ' || *at == '\t')) ++at;
    };
    skip_blanks();
    const bool quoted = at < end && *at == '"';
    if (quoted) {
      ++at;
      skip_blanks();
    }
    if (at + 1 < end && *at == '+' && at[1] != '-') ++at;  // from_chars takes no plus
    const auto parsed = std::from_chars(at, end, value);
    if (parsed.ec != std::errc()) return nullptr;
    at = parsed.ptr;
    skip_blanks();
    if (quoted) {
      if (at == end || *at != '"') return nullptr;
      ++at;
      skip_blanks();
    }
    return at == end || *at == ',' ? at : nullptr;
  }

  [[noreturn]] void fail_cell(std::string_view rest, int64_t line, size_t column) const {
    const std::string cell = take_cell(rest);
    const std::string where = "column " + columns_[column];
    double value = 0;
    const char* const end = cell.data() + cell.size();
    if (cell.empty()) fail(line, where + " is empty; fill it or drop the row");
    const auto parsed = std::from_chars(cell.data(), end, value);
    if (parsed.ec == std::errc::result_out_of_range) {
      fail(line, where + ": " + cell + " is too large or too small for a number here; scale it");
    }
    if (parsed.ec == std::errc() && parsed.ptr == end && !std::isfinite(value)) {
      fail(line, where + " is " + cell + "; replace or drop non-finite values");
    }
    fail(line, where + ": \"" + cell.substr(0, 40) + "\" is not a number; " +
                   (column == label_column_ && options_.label_type == "class"
                        ? "classes are numbers from 0 on"
                        : "fix the cell"));
  }

  double checked_label(double value, int64_t line) const {
    if (options_.label_type != "class") return value;
    const std::string label = fmt::format("label {}", to_text(value));
    if (value != std::floor(value)) {
      fail(line, label + " is no class (0, 1, …); set " + what_ +
                     ".label_type = \"value\" and model.loss = \"mse\" for regression");
    }
    const double bound = options_.classes > 0 ? static_cast<double>(options_.classes)
                                              : static_cast<double>(kMaxUnannouncedClass);
    if (value < 0 || value >= bound) {
      const std::string wanted =
          options_.classes > 0 && value > 0 && value < static_cast<double>(kMaxUnannouncedClass)
              ? fmt::format(".classes = {}", to_text(static_cast<int64_t>(value) + 1))
              : ".classes";
      const std::string also = what_ == "data.eval" ? "data.train.classes and " : "";
      fail(line, fmt::format("{} is out of range [0, {}); fix it{}", label, bound,
                             value < 0 ? "" : " or set " + also + what_ + wanted));
    }
    return value;
  }

  std::unique_ptr<Dataset> make(const at::Tensor& inputs, std::vector<int64_t> shape) {
    DataInfo info{shape, 1, options_.label_type == "class"};
    for (size_t column = 0; column < columns_.size(); ++column) {
      if (column != label_column_) info.feature_names.push_back(columns_[column]);
    }
    const auto rows = static_cast<int64_t>(labels_.size());
    at::Tensor labels = at::empty({rows}, info.class_labels ? at::kLong : at::kFloat);
    if (info.class_labels) {
      std::copy(labels_.begin(), labels_.end(), labels.mutable_data_ptr<int64_t>());
      const double largest = *std::max_element(labels_.begin(), labels_.end());
      info.outputs = options_.classes > 0 ? options_.classes : static_cast<int64_t>(largest) + 1;
    } else {
      std::copy(labels_.begin(), labels_.end(), labels.mutable_data_ptr<float>());
    }
    shape.insert(shape.begin(), rows);
    TensorMap fields;
    fields.set("inputs", inputs.view(shape));
    fields.set("labels", labels);
    std::vector<uint64_t> hashes = std::move(hashes_);
    if (!options_.only_classes.empty()) {
      hashes = hashes_of(hashes, keep_classes(fields, info, options_.only_classes,
                                              "[" + what_ + "] " + options_.path));
    }
    return std::make_unique<TensorDataset>(std::move(fields), info, what_, std::move(hashes));
  }

  const SourceOptions& options_;
  std::string what_;
  std::string text_;
  std::vector<std::string> columns_;
  std::vector<double> labels_;
  std::vector<uint64_t> hashes_;  // of the rows, for data.split
  size_t label_column_ = 0;
};

}  // namespace

std::unique_ptr<Dataset> open_csv(const SourceOptions& options, const std::string& what,
                                  const DataInfo* /*train*/) {
  return CsvReader(options, what).read();
}

}  // namespace tanren
