#include "tanren/run/answer_table.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/run/sample.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace tanren {

namespace {

constexpr const char* kNull = "null";

Cell null_cell() { return {kNull, true}; }

// Shortest decimal that reads back as the same float; JSON has none for infinity.
Cell number_cell(float value) {
  return std::isfinite(value) ? Cell{fmt::format("{}", value), true} : null_cell();
}

std::string json_of_cell(const Cell& cell) {
  if (cell.number) return std::isfinite(*cell.number) ? to_text(*cell.number) : kNull;
  return cell.is_json ? std::string(trimmed(cell.text)) : json_text(nlohmann::json(cell.text));
}

std::string csv_of_cell(const Cell& cell) {
  return cell.is_json && cell.text == kNull ? "" : csv_cell(cell.text);
}

}  // namespace

TableFormat table_format(const std::filesystem::path& file, const std::string& what) {
  const std::string end = file.extension().string();
  if (end == ".csv") return TableFormat::csv;
  if (end == ".jsonl" || end == ".ndjson") return TableFormat::jsonl;
  if (end == ".safetensors") return TableFormat::tensors;
  throw ConfigError("[" + what + "] " + file.string() +
                    " is of no kind that predictions are written to; end its name in .csv, .jsonl "
                    "or .safetensors");
}

std::string csv_cell(const std::string& text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const bool quotes = text.find_first_of(",\"\n\r") != std::string::npos ||
                      (!text.empty() && (is_blank(text.front()) || is_blank(text.back())));
  if (!quotes) return text;
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
}

AnswerTable::AnswerTable(TableFormat format, std::vector<std::string> own, AnswerForm form,
                         DataInfo info, bool all_scores)
    : format_(format),
      own_(std::move(own)),
      form_(form),
      info_(std::move(info)),
      all_scores_(all_scores) {
  std::vector<std::string> names;
  if (form_.kind == AnswerKind::tokens) {
    names = {"position", "token", "log_probability", "label", "score"};
    if (info_.tokenizer != nullptr) {
      tokenizer_ = load_tokenizer(*info_.tokenizer, "tokenizer");
      names.insert(names.begin() + 2, "text");
    }
  } else if (form_.kind == AnswerKind::values) {
    for (int64_t i = 0; i < form_.width; ++i) {
      names.push_back(form_.width == 1 ? "value" : "value_" + class_text(info_, i));
    }
  } else {
    names = {"label", "score"};
    if (all_scores_ && format_ == TableFormat::jsonl) names.emplace_back("scores");
    for (int64_t i = 0; all_scores_ && format_ == TableFormat::csv && i < form_.width; ++i) {
      names.push_back("score_" + class_text(info_, i));
    }
  }
  for (size_t i = 0; i < own_.size(); ++i) places_.emplace(own_[i], i);
  for (auto& name : names) {
    while (places_.contains(name)) name = "predicted_" + name;
    added_.push_back(std::move(name));
  }
}

std::string AnswerTable::header() const {
  if (format_ == TableFormat::jsonl) return "";
  std::string line;
  bool first = true;  // a first column without a name counts, too (an index of pandas)
  for (const auto* names : {&own_, &added_}) {
    for (const auto& name : *names)
      line += (std::exchange(first, false) ? "" : ",") + csv_cell(name);
  }
  return line + "\n";
}

// Part of a character that continues in the next token is shown as U+FFFD.
Cell AnswerTable::text_of(int64_t token) const {
  if (token >= tokenizer_->vocab_size()) return null_cell();
  return {printable(tokenizer_->decode({static_cast<int32_t>(token)}))};
}

std::vector<Cell> AnswerTable::added_cells(const Answer* answer, size_t token) const {
  if (answer == nullptr) return std::vector<Cell>(added_.size(), null_cell());
  std::vector<Cell> cells;
  if (form_.kind == AnswerKind::tokens) {
    const TokenAnswer& one = answer->tokens.at(token);
    const bool has_target = one.token >= 0;
    cells.push_back({to_text(token), true});
    cells.push_back(has_target ? Cell{to_text(one.token), true} : null_cell());
    if (tokenizer_ != nullptr) cells.push_back(has_target ? text_of(one.token) : null_cell());
    cells.push_back(has_target ? number_cell(one.log_probability) : null_cell());
    cells.push_back({to_text(one.label), true});
    cells.push_back(number_cell(one.score));
  } else if (form_.kind == AnswerKind::values) {
    for (const float value : answer->scores) cells.push_back(number_cell(value));
  } else {
    const bool has_name = !info_.class_names.empty() &&
                          answer->label < static_cast<int64_t>(info_.class_names.size());
    cells.push_back({class_text(info_, answer->label), !has_name});
    cells.push_back(number_cell(answer->score));
    if (all_scores_ && format_ == TableFormat::jsonl) {
      std::string scores = "{";
      for (size_t i = 0; i < answer->scores.size(); ++i) {
        scores += (i > 0 ? "," : "") +
                  json_of_cell({class_text(info_, static_cast<int64_t>(i)), false}) + ":" +
                  number_cell(answer->scores[i]).text;
      }
      cells.push_back({scores + "}", true});
    } else if (all_scores_) {
      for (const float score : answer->scores) cells.push_back(number_cell(score));
    }
  }
  // A model may have more outputs than the data have classes. The table has columns only for the
  // classes.
  if (cells.size() < added_.size()) cells.resize(added_.size(), null_cell());
  cells.resize(added_.size());
  return cells;
}

void AnswerTable::add_row(std::string& text, const std::vector<std::string>& names,
                          const std::vector<Cell>& cells, const std::vector<Cell>& added) const {
  const bool is_csv = format_ == TableFormat::csv;
  const Cell none = null_cell();
  bool first = true;
  const auto put = [&](const std::vector<std::string>& columns, const std::vector<Cell>& values) {
    for (size_t i = 0; i < columns.size(); ++i) {
      text += std::exchange(first, false) ? (is_csv ? "" : "{") : ",";
      const Cell& value = i < values.size() ? values[i] : none;
      text += is_csv ? csv_of_cell(value)
                     : json_of_cell({columns[i], false}) + ":" + json_of_cell(value);
    }
  };
  put(names, cells);
  put(added_, added);
  text += is_csv ? "\n" : "}\n";
}

void AnswerTable::add(std::string& text, const std::vector<Cell>& cells,
                      const Answer* answer) const {
  const bool tokens = form_.kind == AnswerKind::tokens && answer != nullptr;
  const size_t rows = tokens ? answer->tokens.size() : 1;
  for (size_t i = 0; i < rows; ++i) add_row(text, own_, cells, added_cells(answer, i));
}

bool AnswerTable::holds(const std::string& name) const {
  if (places_.contains(name)) return true;
  return format_ == TableFormat::jsonl &&
         std::find(added_.begin(), added_.end(), name) == added_.end();
}

std::string AnswerTable::problem_of(const std::vector<std::string>& names) const {
  if (names == own_) return "";
  const auto other = std::find_if(names.begin(), names.end(),
                                  [&](const std::string& name) { return !holds(name); });
  if (other == names.end()) return "";
  if (format_ == TableFormat::jsonl) {
    return "has \"" + *other +
           "\", which predictions are written to and which the first row lacks; rename it";
  }
  return "has \"" + one_line(*other) +
         "\", which the first row lacks, so that a CSV has no column for it; write to a .jsonl "
         "file";
}

void AnswerTable::add(std::string& text, const std::vector<std::string>& names,
                      const std::vector<Cell>& cells, const Answer* answer) const {
  const bool is_csv = format_ == TableFormat::csv;
  std::vector<std::string> held;  // of JSON lines
  std::vector<Cell> values(is_csv ? own_.size() : 0, null_cell());
  for (size_t i = 0; i < names.size(); ++i) {
    if (!holds(names[i])) continue;
    if (is_csv) {
      values[places_.at(names[i])] = cells[i];
    } else {
      held.push_back(names[i]);
      values.push_back(cells[i]);
    }
  }
  if (is_csv) {
    add(text, values, answer);
  } else {
    add_row(text, held, values, added_cells(answer, 0));
  }
}

}  // namespace tanren
