#include "tanren/interop/table_json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace tanren {

namespace {

using TableJson = nlohmann::json;

bool take_text(const TableJson& json, const char* key, std::string& text) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) return false;
  text = found->get<std::string>();
  return true;
}

bool take_flag(const TableJson& json, const char* key, bool& flag) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_boolean()) return false;
  flag = found->get<bool>();
  return true;
}

bool take_finite(const TableJson& json, const char* key, double& number) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return false;
  number = found->get<double>();
  return std::isfinite(number);
}

// Reads texts that must be sorted, without duplicates.
bool take_values(const TableJson& json, std::vector<std::string>& values) {
  const auto found = json.find("values");
  if (found == json.end() || !found->is_array() || found->empty()) return false;
  for (const auto& value : *found) {
    if (!value.is_string()) return false;
    values.push_back(value.get<std::string>());
  }
  return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
}

bool take_column(const TableJson& json, TableColumn& column) {
  if (!json.is_object() || !take_text(json, "name", column.name)) return false;
  column.is_category = json.contains("values");
  if (column.is_category) return take_values(json, column.values);
  return take_finite(json, "mean", column.mean) &&
         take_finite(json, "deviation", column.deviation) && column.deviation > 0 &&
         take_finite(json, "fill", column.fill);
}

}  // namespace

nlohmann::json table_json(const TableEncoding& table) {
  TableJson columns = TableJson::array();
  for (const TableColumn& column : table.columns) {
    TableJson one{{"name", column.name}};
    if (column.is_category) {
      one["values"] = column.values;
    } else {
      one["mean"] = column.mean;
      one["deviation"] = column.deviation;
      one["fill"] = column.fill;
    }
    columns.push_back(std::move(one));
  }
  return {{"columns", std::move(columns)},
          {"standardizes", table.standardizes},
          {"fills", table.fills},
          {"decimal", table.decimal}};
}

std::shared_ptr<const TableEncoding> table_of_json(const nlohmann::json& json,
                                                   const std::vector<std::string>& names,
                                                   double inputs, std::string& problem) {
  problem = "has no usable table";
  TableEncoding table;
  const auto columns = json.is_object() ? json.find("columns") : json.end();
  if (!json.is_object() || columns == json.end() || !columns->is_array()) return nullptr;
  for (const auto& one : *columns) {
    TableColumn column;
    if (!take_column(one, column)) {
      problem = "has a table with a column that is not usable";
      return nullptr;
    }
    table.columns.push_back(std::move(column));
  }
  const bool is_sound = take_flag(json, "standardizes", table.standardizes) &&
                        take_flag(json, "fills", table.fills) &&
                        take_text(json, "decimal", table.decimal) &&
                        (table.decimal == "." || table.decimal == ",");
  if (!is_sound) return nullptr;
  const bool is_named = std::equal(
      table.columns.begin(), table.columns.end(), names.begin(), names.end(),
      [](const TableColumn& column, const std::string& name) { return column.name == name; });
  if (!is_named || static_cast<double>(table.width()) != inputs) {
    problem = "has a table that does not fit its feature_names and input_shape";
    return nullptr;
  }
  problem.clear();
  return std::make_shared<const TableEncoding>(std::move(table));
}

}  // namespace tanren
