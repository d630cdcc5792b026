#include "tanren/predict/sample_columns.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/table_columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

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

// A key that is the same for all spellings of one number, and of true or false in any case; else
// the text itself. Nothing is rounded: different 64-bit ids keep different keys even if their
// doubles are equal.
std::string exact_value(std::string_view text) {
  text = trimmed(text);
  double number = 0;
  if (parse_number(text, ".", number) != CellProblem::none || !std::isfinite(number)) {
    std::string small(text);
    for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return small == "true" || small == "false" ? small : std::string(text);
  }
  std::string digits;    // from the first to the last that is not 0
  int64_t exponent = 0;  // of ten, behind them
  int64_t zeros = 0;     // not yet followed by another digit
  bool past_point = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == 'e' || c == 'E') {
      const size_t at = i + (i + 1 < text.size() && text[i + 1] == '+' ? 2 : 1);
      int64_t more = 0;
      std::from_chars(text.data() + at, text.data() + text.size(), more);
      exponent += more;
      break;
    }
    past_point |= c == '.';
    if (c < '0' || c > '9') continue;
    exponent -= past_point ? 1 : 0;
    ++zeros;
    if (c == '0') continue;
    if (!digits.empty()) digits.append(static_cast<size_t>(zeros - 1), '0');
    digits += c;
    zeros = 0;
  }
  if (digits.empty()) return "0";
  return (text.front() == '-' ? "-" : "") + digits + "e" + to_text(exponent + zeros);
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
  categories_.resize(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!is_category(i)) continue;
    for (const std::string& value : encoder_->table().columns[i].values) {
      categories_[i].emplace(exact_value(value), value);  // the first of one value
    }
  }
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
  for (size_t i = 0; i < places.size(); ++i) {
    const Cell& cell = row.cells[places[i]];
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
      const std::string* known = category_of(i, cell.text);
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
  }
}

// Sets the JSON types of a row's cells in columns of numbers: a number, or null for a missing one.
// Any other cell stays a text.
void SampleColumns::set_types(Row& row) const {
  for (size_t i = 0; i < places_.size(); ++i) {
    if (is_category(i)) continue;
    Cell& cell = row.cells[places_[i]];
    cell.is_json = is_json_number(trimmed(cell.text));
    double number = 0;
    if (cell.is_json) continue;
    if (is_missing(cell.text)) {
      cell.number = NAN;
    } else if (parse_number(cell.text, decimal_, number) == CellProblem::none &&
               std::isfinite(number)) {
      cell.number = number;
    }
  }
}

const std::string* SampleColumns::category_of(size_t index, const std::string& json) const {
  const auto& values = encoder_->table().columns[index].values;
  const auto known = std::lower_bound(values.begin(), values.end(), json);
  if (known != values.end() && *known == json) return &*known;
  const auto found = categories_[index].find(exact_value(json));
  return found == categories_[index].end() ? nullptr : &found->second;
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
  return columns_text(columns);
}

void SampleColumns::read(Row& row) {
  if (row.broken.empty()) read_at(places_, row);
  if (numbers_) set_types(row);
}

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
