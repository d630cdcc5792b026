// csv: a header line, one named label column, and feature columns of numbers or of texts as
// categories. The file is read once, into the tensors inputs [rows, shape…] and labels [rows]. If
// something must be measured, the file is read once or, with data.split, twice before that.
#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/dataset.h"
#include "tanren/data/label_column.h"
#include "tanren/data/only_classes.h"
#include "tanren/data/row_blocks.h"
#include "tanren/data/split.h"
#include "tanren/data/table_cells.h"
#include "tanren/data/table_columns.h"
#include "tanren/data/table_file.h"
#include "tanren/data/table_meter.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <utility>

#include <ATen/ATen.h>

namespace tanren {

namespace {

constexpr const char* kNoRows = "there are no rows below the header; add some";

// The hash of all that an encoding measured on the training data.
uint64_t hash_of(const TableEncoding& table) {
  Hash64 hash;
  for (const TableColumn& column : table.columns) {
    hash.add(column.name);
    hash.add(static_cast<int64_t>(column.is_category));
    for (const auto& value : column.values) hash.add(value);
    for (const double number : {column.mean, column.deviation, column.fill}) {
      hash.add(to_text(number));
    }
  }
  hash.add(static_cast<int64_t>(table.standardizes));
  hash.add(static_cast<int64_t>(table.fills));
  return hash.value();
}

class CsvDataset : public TensorDataset {
 public:
  // `names`: the class names if labels are names; otherwise empty. `hashes`: as in TensorDataset.
  CsvDataset(TensorMap fields, const DataInfo& info, const std::string& what,
             std::vector<std::string> names, std::vector<uint64_t> hashes)
      : TensorDataset(std::move(fields), info, what, std::move(hashes)),
        table_(info.table),
        names_(std::move(names)) {}

  std::vector<DataPart> parts() const override {
    std::vector<DataPart> parts = TensorDataset::parts();
    parts.push_back(part_of("columns", info().feature_names));
    if (table_ != nullptr) parts.push_back({"columns and what was measured", hash_of(*table_)});
    if (!names_.empty()) parts.push_back(part_of("class names", names_));
    return parts;
  }

 private:
  std::shared_ptr<const TableEncoding> table_;
  std::vector<std::string> names_;
};

class CsvReader {
 public:
  CsvReader(const SourceOptions& options, const std::string& what, const DataInfo* train)
      : options_(options), what_(what), train_(train) {
    if (train_ != nullptr) shared_ = train_->table;
  }

  std::unique_ptr<Dataset> read() {
    TableFile file = open();
    first_ = file.reading();
    label_ = label_place(file, options_, what_);
    choose_columns(file);
    const std::vector<int64_t> shape = checked_shape(file);
    const CellEncoder encoder(std::make_shared<const TableEncoding>(table_), options_);
    LabelColumn labels(options_, what_, train_, decimal());
    RowBlocks rows(table_.width());
    while (file.next()) {
      labels.add(file.cells()[label_], file);
      read_row(file, encoder, rows.add());
      if (options_.split > 0) hashes_.push_back(split_hash(file.row()));
    }
    end_reading(file);
    if (rows.rows() == 0) file.fail(1, kNoRows);
    return make(file, rows.take(), labels, shape);
  }

 private:
  // Says whether the row of this number (from 0) is used for training. An empty function keeps all.
  using KeepsRow = std::function<bool(int64_t row)>;

  TableFile open() const {
    std::vector<std::string> wanted{options_.label};
    if (shared_ != nullptr) {
      for (const TableColumn& column : shared_->columns) wanted.push_back(column.name);
    }
    return {options_, what_, wanted, decimal()};
  }

  // Checks that a file that is opened again still has the header of the first time.
  void check_header(const TableFile& file) const {
    const TableFile::Reading now = file.reading();
    if (now.columns != first_.columns || now.delimiter != first_.delimiter) fail_changed();
  }

  // Ends one reading. All later readings must be equal to the first.
  void end_reading(const TableFile& file) {
    const TableFile::Reading now = file.reading();
    if (is_read_ && now != first_) fail_changed();
    first_ = now;
    is_read_ = true;
  }

  [[noreturn]] void fail_changed() const {
    throw DataError("[" + what_ + "] " + options_.path +
                    ": the file changed while it was read; start again when nothing writes to it");
  }

  const std::string& decimal() const {
    static const std::string point = ".";
    if (!options_.decimal.empty()) return options_.decimal;
    return shared_ != nullptr ? shared_->decimal : point;
  }

  // Chooses the columns that training used, if there are any. Otherwise chooses and measures the
  // columns that the keys ask for, or all columns without these keys.
  void choose_columns(const TableFile& file) {
    if (shared_ != nullptr) {
      table_ = *shared_;
      check_label(file);
      places_ = places_of(table_, file, "data.train");
    } else if (asks_for_encoding(options_)) {
      table_ = asked_columns(file, options_, what_, label_);
      places_ = places_of(table_, file, what_);
      if (needs_measures(table_, options_)) measure();
      shared_ = std::make_shared<const TableEncoding>(table_);
    } else {
      for (size_t i = 0; i < file.columns().size(); ++i) {
        if (i == label_) continue;
        table_.columns.push_back({.name = file.columns()[i], .values = {}});
        places_.push_back(i);
      }
    }
  }

  // A label column that is also an input would reveal the answer.
  void check_label(const TableFile& file) const {
    for (const TableColumn& column : table_.columns) {
      if (column.name != options_.label) continue;
      file.fail(1, what_ + ".label names \"" + one_line(column.name) +
                       "\", which is a feature of data.train; name the column of the labels");
    }
  }

  // The rows of the part that data.split leaves to training.
  KeepsRow rows_to_measure() {
    if (!(options_.split > 0)) return {};
    TableFile file = open();
    check_header(file);
    LabelColumn labels(options_, what_, train_, decimal());
    std::vector<uint64_t> hashes;
    std::vector<int64_t> numbers;  // of the rows that only_classes keeps
    for (int64_t row = 0; file.next(); ++row) {
      labels.add(file.cells()[label_], file);
      if (!is_chosen(file.cells()[label_])) continue;
      hashes.push_back(split_hash(file.row()));
      numbers.push_back(row);
    }
    end_reading(file);
    std::vector<bool> is_kept(static_cast<size_t>(labels.size()));
    if (hashes.empty()) return {};
    DataInfo info;
    const at::Tensor all = labels.take(info, file);
    std::vector<int64_t> classes;
    if (info.class_labels) {
      const std::vector<int64_t> of_rows = numbers_of(all);
      for (const int64_t row : numbers) classes.push_back(of_rows[static_cast<size_t>(row)]);
    }
    for (const int64_t index : split_rows(hashes, classes, options_.split, /*eval=*/false)) {
      is_kept[static_cast<size_t>(numbers[static_cast<size_t>(index)])] = true;
    }
    return [is_kept](int64_t row) {
      return row < std::ssize(is_kept) && is_kept[static_cast<size_t>(row)];
    };
  }

  void measure() {
    if (!std::filesystem::is_regular_file(options_.path)) {
      throw DataError("[" + what_ + "] " + options_.path +
                      " is no plain file, and its columns are measured before it is read; write it "
                      "to one");
    }
    const KeepsRow keeps = rows_to_measure();
    TableFile file = open();
    check_header(file);
    TableMeter meter(table_, places_, options_, what_);
    int64_t rows = 0, chosen = 0;
    for (; file.next(); ++rows) {
      if (!is_chosen(file.cells()[label_])) continue;
      ++chosen;
      if (!keeps || keeps(rows)) meter.add(file);
    }
    end_reading(file);
    if (rows == 0) file.fail(1, kNoRows);
    if (chosen == 0) {
      throw DataError("[" + what_ + "] " + options_.path + ": no sample has the class " +
                      options_.only_classes.front() + " of only_classes; drop it from there");
    }
    meter.finish(file);
  }

  // Whether only_classes keeps a row of that label.
  bool is_chosen(std::string_view cell) const {
    const auto& only = options_.only_classes;
    const std::string_view text = trimmed(cell);
    double label = 0;
    const bool is_number = parse_number(text, ".", label) == CellProblem::none;
    return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& name) {
             double number = 0;
             const bool is_one = parse_number(name, ".", number) == CellProblem::none;
             return name == text || (is_number && is_one && number == label);
           });
  }

  std::vector<int64_t> checked_shape(const TableFile& file) const {
    const int64_t width = table_.width();
    if (options_.shape.empty()) return {width};
    std::vector<std::string> sizes;
    double product = 1;
    for (const auto size : options_.shape) {
      product *= static_cast<double>(size);
      sizes.push_back(to_text(size));
    }
    const bool positive = *std::min_element(options_.shape.begin(), options_.shape.end()) > 0;
    if (!positive || product != static_cast<double>(width)) {
      file.fail(1, fmt::format("there are {} {}, {}.shape = [{}] asks for {}; make them agree",
                               width, shared_ != nullptr ? "inputs" : "feature columns", what_,
                               join(sizes), to_text(product)));
    }
    return options_.shape;
  }

  void read_row(const TableFile& file, const CellEncoder& encoder, float* inputs) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      const std::string_view cell = file.cells()[places_[i]];
      const CellProblem problem = encoder.encode(i, cell, inputs);
      if (problem != CellProblem::none) fail_cell(file, problem, table_.columns[i].name, cell);
      inputs += table_.columns[i].width();
    }
  }

  [[noreturn]] void fail_cell(const TableFile& file, CellProblem problem, const std::string& column,
                              std::string_view cell) const {
    if (problem == CellProblem::too_large) {
      double value = 0;
      parse_number(cell, decimal(), value);
      file.fail(fmt::format("column {}: {}{} is too large for a 32-bit float; scale it down",
                            one_line(column), to_text(value),
                            table_.standardizes ? "" : " (times " + what_ + ".scale)"));
    }
    std::string text = cell_text(problem, column, cell);
    if (problem == CellProblem::missing) {
      text += ", or set data.train.missing to \"mean\" or \"zero\"";
    } else if (problem == CellProblem::no_number) {
      double value = 0;
      const bool is_comma =
          file.delimiter() != ',' && parse_number(cell, ",", value) == CellProblem::none;
      text += is_comma ? ", or set " + what_ + ".decimal = \",\" if a comma stands before fractions"
                       : ", or add the column to data.train.categories or data.train.ignore";
    }
    file.fail(text);
  }

  std::unique_ptr<Dataset> make(const TableFile& file, const at::Tensor& inputs,
                                LabelColumn& labels, std::vector<int64_t> shape) const {
    DataInfo info{shape, 1, true};
    for (const TableColumn& column : table_.columns) info.feature_names.push_back(column.name);
    info.table = shared_;
    const int64_t rows = labels.size();
    const at::Tensor classes = labels.take(info, file);
    shape.insert(shape.begin(), rows);
    TensorMap fields;
    fields.set("inputs", inputs.view(shape));
    fields.set("labels", classes);
    const std::vector<std::string> names = info.class_names;
    std::vector<uint64_t> hashes = hashes_;
    if (!options_.only_classes.empty()) {
      const std::string where = "[" + what_ + "] " + options_.path;
      hashes =
          hashes_of(hashes, keep_classes(fields, info, numbers_of_classes(names, where), where));
      info.class_names = options_.only_classes;
    }
    return std::make_unique<CsvDataset>(std::move(fields), info, what_, names, std::move(hashes));
  }

  // The entries of only_classes as class numbers, by their places in `names`; unchanged without
  // names.
  std::vector<std::string> numbers_of_classes(const std::vector<std::string>& names,
                                              const std::string& where) const {
    if (names.empty()) return options_.only_classes;
    std::vector<std::string> numbers;
    for (const std::string& name : options_.only_classes) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end()) {
        throw DataError(where + ": no sample has the class " + name + " of only_classes; it has " +
                        columns_text(names));
      }
      numbers.push_back(to_text(found - names.begin()));
    }
    return numbers;
  }

  const SourceOptions& options_;
  const std::string& what_;
  const DataInfo* train_;
  std::shared_ptr<const TableEncoding> shared_;  // null: the numbers of all columns are inputs
  TableEncoding table_;
  std::vector<size_t> places_;    // of the table's columns
  std::vector<uint64_t> hashes_;  // of the rows, for data.split
  size_t label_ = 0;
  TableFile::Reading first_;  // only the header until is_read_
  bool is_read_ = false;
};

}  // namespace

std::unique_ptr<Dataset> open_csv(const SourceOptions& options, const std::string& what,
                                  const DataInfo* train) {
  return CsvReader(options, what, train).read();
}

}  // namespace tanren
