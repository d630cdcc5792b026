// TableEncoding: how the cells of a table's row become the inputs of a sample. It is measured on
// the training data and kept with the model, so that evaluations and predictions use the same
// encoding.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct TableColumn {
  std::string name;
  bool is_category = false;  // of texts; otherwise numbers
  std::vector<std::string>
      values;                      // of a category: the texts that are known, sorted, an input each
  double mean = 0, deviation = 1;  // of numbers: input = (number - mean) / deviation
  double fill = 0;                 // of numbers: replaces a missing one

  int64_t width() const { return is_category ? static_cast<int64_t>(values.size()) : 1; }
};

struct TableEncoding {
  std::vector<TableColumn> columns;  // in the order of the inputs
  bool standardizes = false;         // numbers by mean and deviation, else by data.*.scale, offset
  bool fills = false;                // missing cells are filled; else they are errors
  std::string decimal = ".";         // between a number's whole part and its fraction

  // Inputs of a sample.
  int64_t width() const {
    int64_t inputs = 0;
    for (const TableColumn& column : columns) inputs += column.width();
    return inputs;
  }
};

}  // namespace tanren
