#include "tanren/predict/sample_columns.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/table_columns.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>

namespace tanren {

namespace {

// JSON's numbers have no plus, no leading zeros, and digits on both sides of the point.
bool is_json_number(std::string_view text) {
  const auto digits = [&] {
    size_t count = 0;
    while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
    text.remove_prefix(count);
    return count;
  };
  const auto take = [&](std::string_view any) {
    if (text.empty() || any.find(text.front()) == std::string_view::npos) return false;
    text.remove_prefix(1);
    return true;
  };
  take("-");
  const bool zero = !text.empty() && text.front() == '0';
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (take(".") && digits() == 0) return false;
  if (take("eE")) {
    take("+-");
    if (digits() == 0) return false;
  }
  return text.empty();
}

// The category that a JSON value which is no text stands for: true in any case of its letters, a
// number by its value. Null if there is none.
const std::string* category_of(const std::string& json, const std::vector<std::string>& values) {
  const auto is_same = [&](const std::string& value) {
    if (json == "true" || json == "false") {
      return std::equal(value.begin(), value.end(), json.begin(), json.end(), [](char a, char b) {
        return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
      });
    }
    double mine = 0, theirs = 0;
    return parse_number(json, ".", mine) == CellProblem::none &&
           parse_number(value, ".", theirs) == CellProblem::none && mine == theirs;
  };
  auto found = std::find(values.begin(), values.end(), json);
  if (found == values.end()) found = std::find_if(values.begin(), values.end(), is_same);
  return found == values.end() ? nullptr : &*found;
}

// The name itself, else one that differs in blanks around it alone.
std::optional<size_t> place_among(const std::string& name,
                                  const std::vector<std::string>& columns) {
  auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) {
    found = std::find_if(columns.begin(), columns.end(),
                         [&](const auto& column) { return trimmed(column) == trimmed(name); });
  }
  if (found == columns.end()) return std::nullopt;
  return static_cast<size_t>(found - columns.begin());
}

}  // namespace

SampleColumns::SampleColumns(const RunConfig& config, const DataInfo& info) {
  const SourceOptions& source = config.data.eval;
  numbers_ = source.kind == "csv";
  if (!numbers_) {
    names_.push_back(source.text);
    pairs_ = !source.text_pair.empty();
    if (pairs_) names_.push_back(source.text_pair);
    return;
  }
  if (info.table != nullptr) encoder_.emplace(info.table, source);
  if (info.table != nullptr) decimal_ = info.table->decimal;
  if (!source.decimal.empty()) decimal_ = source.decimal;
  names_ = info.feature_names;
  unknown_.resize(names_.size());
  const std::string instead = "give it tensors (--set data.eval.kind=tensors)";
  if (names_.empty()) {
    throw ConfigError(
        "[predict] the data that the model was trained on name no columns, so that those of a "
        "table cannot be told; " +
        instead);
  }
  std::set<std::string_view> seen;
  for (const std::string& name : names_) {
    if (seen.insert(trimmed(name)).second) continue;
    throw ConfigError("[predict] the model was trained on two columns that are called \"" +
                      one_line(name) + "\", which cannot be told apart by name; " + instead +
                      ", or rename one and train again");
  }
}

void SampleColumns::bind(const std::vector<std::string>& columns, const std::string& where) {
  places_.clear();
  for (const std::string& name : names_) {
    const auto place = place_among(name, columns);
    if (!place) {
      throw DataError(fmt::format(
          "{}: there is no column \"{}\"; the model was trained on {}, and the file has {}; {}",
          where, one_line(name), columns_text(names_), columns_text(columns),
          numbers_ ? columns.size() == 1
                         ? "rename its columns, or set data.eval.delimiter to what separates cells"
                         : "rename its columns"
                   : "set data.eval.text to the column that holds the text"));
    }
    places_.push_back(*place);
  }
}

bool SampleColumns::is_category(size_t index) const {
  return encoder_ && encoder_->table().columns[index].is_category;
}

void SampleColumns::read_at(const std::vector<size_t>& places, Row& row) {
  const bool is_table = row.names.empty();  // whose cells have no types yet
  for (size_t i = 0; i < places.size(); ++i) {
    Cell& cell = row.cells[places[i]];
    const std::string& column = names_[i];
    if (!numbers_) {
      if (cell.is_json || trimmed(cell.text).empty()) {
        row.broken = "column " + column +
                     (cell.is_json ? " is no text; put it into quotes or drop the row"
                                   : " is empty; fill it or drop the row");
        return;
      }
      (i == 0 ? row.sample.text : row.sample.pair) = cell.text;
      continue;
    }
    std::string_view text = cell.text;
    std::string with_comma;
    if (cell.is_json && is_category(i) && !is_missing(text)) {
      const std::string* known = category_of(cell.text, encoder_->table().columns[i].values);
      if (known == nullptr) {
        row.broken = "column " + one_line(column) + ": " + one_line(text).substr(0, 40) +
                     " is no text, and no value that training had; put it into quotes or drop the "
                     "row";
        return;
      }
      text = *known;
    } else if (cell.is_json && !is_category(i) && decimal_ != ".") {  // JSON has points alone
      with_comma = cell.text;
      std::replace(with_comma.begin(), with_comma.end(), '.', ',');
      text = with_comma;
    }
    const CellProblem problem = read_input(i, text, row.sample);
    if (problem != CellProblem::none) {
      row.broken = cell_text(problem, column, cell.text);
      return;
    }
    if (!is_table || is_category(i)) continue;
    cell.is_json = is_json_number(trimmed(cell.text));
    double number = 0;  // the column's cells are of one type in JSON
    const bool is_other = !cell.is_json &&
                          parse_number(cell.text, decimal_, number) == CellProblem::none &&
                          std::isfinite(number);
    if (is_other) cell.number = number;
  }
}

CellProblem SampleColumns::read_input(size_t index, std::string_view cell, Sample& sample) {
  if (encoder_) {
    const auto begin = std::ssize(sample.inputs);
    sample.inputs.resize(sample.inputs.size() +
                         static_cast<size_t>(encoder_->table().columns[index].width()));
    const CellProblem problem = encoder_->encode(index, cell, sample.inputs.data() + begin);
    const bool is_known = std::any_of(sample.inputs.begin() + begin, sample.inputs.end(),
                                      [](float input) { return input != 0; });
    if (is_category(index) && !is_known && !is_missing(cell)) ++unknown_[index];
    return problem;
  }
  if (trimmed(cell).empty()) return CellProblem::missing;
  double value = 0;
  const CellProblem problem = parse_number(cell, decimal_, value);
  sample.numbers.push_back(value);
  return problem == CellProblem::none && !std::isfinite(value) ? CellProblem::not_finite : problem;
}

std::string SampleColumns::unknown_text() const {
  std::vector<std::string> columns;
  for (size_t i = 0; i < unknown_.size(); ++i) {
    if (unknown_[i] > 0) columns.push_back(fmt::format("{} {}", one_line(names_[i]), unknown_[i]));
  }
  return join(columns);
}

void SampleColumns::read(Row& row) { read_at(places_, row); }

void SampleColumns::read_by_name(Row& row) {
  std::vector<size_t> places;
  for (const std::string& name : names_) {
    const auto place = place_among(name, row.names);
    if (!place) {
      row.broken = "there is no \"" + one_line(name) + "\"; the row has " + columns_text(row.names);
      return;
    }
    places.push_back(*place);
  }
  read_at(places, row);
}

}  // namespace tanren
