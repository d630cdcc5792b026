#include "tanren/data/label_column.h"

#include "tanren/base/counted.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/dataset.h"
#include "tanren/data/table_cells.h"
#include "tanren/data/table_columns.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

namespace tanren {

LabelColumn::LabelColumn(const SourceOptions& options, const std::string& what,
                         const DataInfo* train, const std::string& decimal)
    : options_(options), what_(what), train_(train), decimal_(decimal) {
  if (!is_class()) return;
  names_ = options.class_names;
  // With only_classes, the classes are numbered again after they are read, so training's names do
  // not apply to the file.
  const bool is_same_kind = train != nullptr && !train->feature_names.empty();
  if (names_.empty() && is_same_kind && options.only_classes.empty()) names_ = train->class_names;
  for (const std::string& name : names_) known_.emplace(name, std::ssize(known_));
}

void LabelColumn::add(std::string_view cell, const TableFile& file) {
  const std::string_view text = trimmed(cell);
  if (!names_.empty()) return add_known(text, file);
  double value = 0;
  const CellProblem problem = parse_number(text, is_class() ? "." : decimal_, value);
  const bool is_name = is_class() && problem == CellProblem::no_number && !is_missing(text);
  if (is_name) return add_new(text, file);
  if (problem != CellProblem::none || !std::isfinite(value)) fail_number(text, file);
  add_value(value, text, file);
}

void LabelColumn::fail_number(std::string_view cell, const TableFile& file) const {
  double value = 0;
  CellProblem problem = parse_number(cell, is_class() ? "." : decimal_, value);
  if (problem == CellProblem::none) problem = CellProblem::not_finite;
  if (problem == CellProblem::no_number && is_missing(cell)) problem = CellProblem::missing;
  file.fail(cell_text(problem, options_.label, cell));
}

void LabelColumn::add_value(double value, std::string_view cell, const TableFile& file) {
  if (!is_class()) {
    labels_.push_back(value);
    return;
  }
  if (!found_.empty()) {
    file.fail(
        fmt::format("label {} is a number, and those before it are names, such as \"{}\"; "
                    "fix it, or list all in data.train.class_names",
                    one_line(cell), one_line(found_.begin()->first).substr(0, 40)));
  }
  const std::string label = fmt::format("label {}", to_text(value));
  if (value != std::floor(value)) {
    file.fail(label + " is no class (0, 1, …); set " + what_ +
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
    file.fail(fmt::format("{} is out of range [0, {}); fix it{}", label, bound,
                          value < 0 ? "" : " or set " + also + what_ + wanted));
  }
  labels_.push_back(value);
}

void LabelColumn::add_known(std::string_view text, const TableFile& file) {
  const auto found = known_.find(text);
  if (found == known_.end()) {
    if (is_missing(text)) fail_number(text, file);
    file.fail(fmt::format("label \"{}\" is none of the classes {}{}; fix it",
                          one_line(text).substr(0, 40), columns_text(names_),
                          train_ != nullptr ? " that data.train has" : ""));
  }
  labels_.push_back(static_cast<double>(found->second));
}

void LabelColumn::add_new(std::string_view text, const TableFile& file) {
  const bool is_mixed = found_.empty() && !labels_.empty();
  // Evaluation data that take no class names from training must have numbers as labels.
  const bool is_numbered = train_ != nullptr && options_.only_classes.empty();
  if (is_mixed || is_numbered) {
    file.fail("column " + one_line(options_.label) + ": \"" + one_line(text).substr(0, 40) +
              "\" is not a number; classes are numbers from 0 on, or " +
              (is_numbered ? "names that data.train has" : "all of them names"));
  }
  auto place = found_.find(text);
  if (place == found_.end()) {
    place = found_.emplace(std::string(text), std::ssize(found_)).first;
  }
  labels_.push_back(static_cast<double>(place->second));
  constexpr int64_t kMostNames = 1000;
  if (std::ssize(found_) <= std::max(kMostNames, options_.classes)) return;
  file.fail(
      fmt::format("the label column has more than {} different names; is it the right one? "
                  "If so, list them in {}.class_names",
                  to_text(std::max(kMostNames, options_.classes)), what_));
}

// Sorts the names that the rows have and turns the labels into places in this order.
void LabelColumn::sort_names() {
  std::vector<double> sorted(found_.size());
  for (const auto& [name, place] : found_) {
    sorted[static_cast<size_t>(place)] = static_cast<double>(names_.size());
    names_.push_back(name);
  }
  for (double& label : labels_) label = sorted[static_cast<size_t>(label)];
}

at::Tensor LabelColumn::take(DataInfo& info, const TableFile& file) {
  info.class_labels = is_class();
  if (!info.class_labels) {
    at::Tensor values = at::empty({size()}, at::kFloat);
    std::copy(labels_.begin(), labels_.end(), values.mutable_data_ptr<float>());
    info.outputs = 1;
    return values;
  }
  if (!found_.empty()) sort_names();
  info.class_names = names_;
  const auto named = static_cast<int64_t>(names_.size());
  if (!found_.empty() && options_.classes > 0 && options_.classes != named) {
    file.fail(1, fmt::format("the label column has {}, {}.classes is {}; drop it, or fix the "
                             "labels: {}",
                             counted(named, "name"), what_, to_text(options_.classes),
                             columns_text(names_)));
  }
  at::Tensor classes = at::empty({size()}, at::kLong);
  std::copy(labels_.begin(), labels_.end(), classes.mutable_data_ptr<int64_t>());
  const double largest = *std::max_element(labels_.begin(), labels_.end());
  info.outputs = named > 0              ? named
                 : options_.classes > 0 ? options_.classes
                                        : static_cast<int64_t>(largest) + 1;
  return classes;
}

}  // namespace tanren
