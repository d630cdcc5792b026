// csv: a header line, one label column by name, every other column a number.
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/data/dataset.h"

#include <ATen/ATen.h>

#include <charconv>
#include <cmath>
#include <string_view>

namespace tanren {

namespace {

// Splits off the next line, without its line end.
std::string_view take_line(std::string_view& text) {
  const auto end = text.find('\n');
  auto line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

// Splits off the next cell, without quotes and spaces around it.
std::string_view take_cell(std::string_view& line) {
  const auto end = line.find(',');
  auto cell = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '"')) cell.remove_prefix(1);
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '"')) cell.remove_suffix(1);
  return cell;
}

class CsvReader {
 public:
  CsvReader(const SourceOptions& options, const std::string& what)
      : options_(options), what_(what), text_(read_file(options.path)) {}

  std::unique_ptr<Dataset> read() {
    std::string_view rest = text_;
    read_header(take_line(rest));
    std::vector<float> features;
    std::vector<float> labels;
    for (int64_t line_number = 2; !rest.empty(); ++line_number) {
      const auto line = take_line(rest);
      if (line.empty()) continue;
      read_row(line, line_number, features, labels);
    }
    if (labels.empty()) fail(1, "there are no rows below the header");
    return make(std::move(features), std::move(labels));
  }

 private:
  [[noreturn]] void fail(int64_t line, const std::string& problem) const {
    throw DataError("[" + what_ + "] " + options_.path + ":" + std::to_string(line) + ": " + problem);
  }

  void read_header(std::string_view line) {
    if (line.empty()) fail(1, "the file is empty; it needs a header line that names the columns");
    std::string_view rest = line;
    while (!rest.empty()) columns_.emplace_back(take_cell(rest));
    if (line.back() == ',') columns_.emplace_back();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i] == options_.label) label_column_ = i;
    }
    if (label_column_ == SIZE_MAX) {
      const std::vector<std::string> shown(
          columns_.begin(), columns_.begin() + static_cast<long>(std::min<size_t>(columns_.size(), 8)));
      fail(1, "there is no column \"" + options_.label + "\" (" + what_ + ".label); the columns are " +
                  join(shown) + (columns_.size() > shown.size() ? ", …" : ""));
    }
    if (columns_.size() < 2) fail(1, "there is no feature column beside the label");
  }

  void read_row(std::string_view line, int64_t number, std::vector<float>& features,
                std::vector<float>& labels) const {
    std::string_view rest = line;
    size_t column = 0;
    bool more = true;
    for (; more; ++column) {
      more = rest.find(',') != std::string_view::npos;
      const auto cell = take_cell(rest);
      if (column >= columns_.size()) break;
      float value = 0;
      const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
      if (error != std::errc() || end != cell.data() + cell.size()) {
        fail(number, "column " + columns_[column] + ": \"" + std::string(cell) + "\" is not a number");
      }
      if (!std::isfinite(value)) {
        fail(number, "column " + columns_[column] + " is " + std::string(cell) +
                         "; replace or drop non-finite values");
      }
      if (column == label_column_) {
        labels.push_back(checked_label(value, number));
      } else {
        features.push_back(static_cast<float>(value * options_.scale + options_.offset));
      }
    }
    if (column != columns_.size() || more) {
      fail(number, "has " + std::string(column < columns_.size() ? "only " : "more than ") +
                       std::to_string(std::min(column, columns_.size())) + " cells, the header names " +
                       std::to_string(columns_.size()) + "; is the line cut off or a comma missing?");
    }
  }

  float checked_label(float value, int64_t line) const {
    if (options_.label_type != "class") return value;
    if (value != std::floor(value) || value < 0) {
      fail(line, "label " + std::to_string(value) + " is no class (0, 1, …); set " + what_ +
                     ".label_type = \"value\" for regression");
    }
    if (options_.classes > 0 && value >= static_cast<float>(options_.classes)) {
      fail(line, "label " + std::to_string(static_cast<int64_t>(value)) + " is out of range [0, " +
                     std::to_string(options_.classes) + ") (" + what_ + ".classes)");
    }
    return value;
  }

  std::unique_ptr<Dataset> make(std::vector<float> features, std::vector<float> labels) const {
    const auto rows = static_cast<int64_t>(labels.size());
    const auto width = static_cast<int64_t>(columns_.size()) - 1;
    std::vector<int64_t> shape = options_.shape.empty() ? std::vector<int64_t>{width} : options_.shape;
    int64_t product = 1;
    for (const auto size : shape) product *= size;
    if (product != width) {
      throw DataError("[" + what_ + "] " + options_.path + " has " + std::to_string(width) +
                      " feature columns, " + what_ + ".shape asks for " + std::to_string(product) +
                      "; make them agree");
    }
    DataInfo info{shape, options_.classes, options_.label_type == "class"};
    at::Tensor label_tensor = at::tensor(labels);
    if (info.class_labels) {
      label_tensor = label_tensor.to(at::kLong);
      if (info.outputs == 0) info.outputs = label_tensor.max().item<int64_t>() + 1;
    } else {
      info.outputs = 1;
    }
    shape.insert(shape.begin(), rows);
    TensorMap fields;
    fields.set("inputs", at::tensor(features).view(shape));
    fields.set("labels", label_tensor);
    return std::make_unique<TensorDataset>(std::move(fields), info, what_);
  }

  const SourceOptions& options_;
  std::string what_;
  std::string text_;
  std::vector<std::string> columns_;
  size_t label_column_ = SIZE_MAX;
};

}  // namespace

std::unique_ptr<Dataset> open_csv(const SourceOptions& options, const std::string& what) {
  return CsvReader(options, what).read();
}

}  // namespace tanren
