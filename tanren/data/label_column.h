// LabelColumn: the labels of a table, row by row: classes with or without names, or values. Classes
// are either all numbers 0, 1, … or all names. Names are sorted unless they are given. Called by
// the kind csv.
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
  // `train`: the training data's info, which gives evaluation data their class names; null for
  // training. All arguments must outlive this object.
  LabelColumn(const SourceOptions& options, const std::string& what, const DataInfo* train,
              const std::string& decimal);

  // Adds the label `cell` of the file's last row. DataError naming the line if the label is
  // missing, unknown, not a number or out of range.
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
  std::map<std::string, int64_t, std::less<>> found_;  // the rows' names → order of appearance
  std::vector<double> labels_;                         // values, classes or places in found_
};

}  // namespace tanren
