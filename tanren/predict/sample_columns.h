// SampleColumns: which columns of a table make a sample, and how their cells are read. Shared by
// the readers of rows.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"
#include "tanren/data/table_cells.h"
#include "tanren/predict/rows.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tanren {

class SampleColumns {
 public:
  // ConfigError if the model was trained on columns without names, or on two of one name: the
  // columns of a table cannot be identified by their positions.
  SampleColumns(const RunConfig& config, const DataInfo& info);

  // The names that a sample is read from.
  const std::vector<std::string>& names() const { return names_; }
  const std::string& decimal() const { return decimal_; }
  // Finds the names among `columns`, by which later rows are read; blanks around a name do not
  // count. DataError naming both lists if one is missing. `where` begins the text
  // ("[predict] new.csv:1").
  void bind(const std::vector<std::string>& columns, const std::string& where);
  // Reads the sample from the cells of the bound columns; sets row.broken if it cannot. The cells
  // of numbers get their JSON, also of a row that is broken already.
  void read(Row& row);
  // Reads the sample from the cells that have these names in row.names. A JSON value that is no
  // text is the category of that value.
  void read_by_name(Row& row);
  // How many texts of each category training did not have, in words; empty: none.
  std::string unknown_text() const;

 private:
  void read_at(const std::vector<size_t>& places, Row& row);
  void set_types(Row& row) const;
  // The category of column `index` for a JSON value that is no text; null: there is none.
  const std::string* category_of(size_t index, const std::string& json) const;
  // Adds what column `index` gives of the sample.
  CellProblem read_input(size_t index, std::string_view cell, Sample& sample);
  bool is_category(size_t index) const;

  bool numbers_ = false, pairs_ = false;
  std::vector<std::string> names_;
  std::vector<size_t> places_;
  std::string decimal_ = ".";
  std::optional<CellEncoder> encoder_;  // none: numbers are taken as they are
  std::vector<std::unordered_map<std::string, std::string>> categories_;  // by value
  std::vector<int64_t> unknown_;  // of each column: texts that its category does not know
};

}  // namespace tanren
