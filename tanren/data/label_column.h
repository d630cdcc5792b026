// LabelColumn: the labels of a table, row by row: classes with or without names, or values. Classes
// are numbers 0, 1, …, or all of them names, which are sorted unless they are given. Called by the
// kind csv.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"
#include "tanren/data/table_file.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

class LabelColumn {
 public:
  // `train`: the training data's info, whose names of classes an evaluation has; null for training.
  // All must outlive it.
  LabelColumn(const SourceOptions& options, const std::string& what, const DataInfo* train,
              const std::string& decimal);

  // Takes the label of the file's last row. DataError naming its line if it is missing, unknown, no
  // number or out of range.
  void add(std::string_view cell, const TableFile& file);
  int64_t size() const { return static_cast<int64_t>(labels_.size()); }
  // int64 classes or fp32 values, [size()]; sets info's outputs, class_labels and class_names.
  at::Tensor take(DataInfo& info, const TableFile& file);

 private:
  [[noreturn]] void fail_number(std::string_view cell, const TableFile& file) const;
  void add_value(double value, std::string_view cell, const TableFile& file);
  void add_known(std::string_view text, const TableFile& file);
  void add_new(std::string_view text, const TableFile& file);
  void sort_names();
  bool is_class() const { return options_.label_type == "class"; }

  const SourceOptions& options_;
  const std::string& what_;
  const DataInfo* train_;
  const std::string& decimal_;
  std::vector<std::string> names_;  // known before the first row; empty: none are
  std::map<std::string, int64_t, std::less<>> known_;  // places of names_
  std::map<std::string, int64_t, std::less<>> found_;  // names of the rows, as they came
  std::vector<double> labels_;                         // values, classes or places in found_
};

}  // namespace tanren
