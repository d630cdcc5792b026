// AnswerTable: predictions as the rows of a CSV or JSON lines file. A row has its input's columns
// in their order, then the model's answer. Text in, text out; writes no file. Used by tanren
// predict and by tanren eval --predictions.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/train/answers.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tanren {

// A value of the input's own columns.
struct Cell {
  std::string text;
  bool is_json = false;  // `text` is a JSON value (a number, null, a list), not a text; blanks may
                         // stand around it
  // The number that JSON has in place of `text`, such as "+2"; NaN: null.
  std::optional<double> number = {};
};

enum class TableFormat { csv, jsonl, tensors };

// By the name's end (.csv, .jsonl, .safetensors); an AnswerTable writes the first two. ConfigError
// naming the formats; error texts begin with `what`.
TableFormat table_format(const std::filesystem::path& file, const std::string& what);

// A cell of a CSV: quoted if it has to be.
std::string csv_cell(const std::string& text);

class AnswerTable {
 public:
  // `own`: the columns of the input's rows. The added ones are label and score, or value, …; for
  // tokens whose tokenizer `info` has, also their text, as far as it is whole characters. An added
  // name that `own` already has gets the prefix "predicted_". `all_scores`: adds the scores of all
  // classes.
  AnswerTable(TableFormat format, std::vector<std::string> own, AnswerForm form, DataInfo info,
              bool all_scores);

  // What the file begins with: the header line of a CSV, else nothing.
  std::string header() const;
  // Appends the row, or one row for each token. `cells`: one for each own column. `answer` null:
  // there is none, and its columns are null (in a CSV: empty).
  void add(std::string& text, const std::vector<Cell>& cells, const Answer* answer) const;
  // The same for a row of a JSON lines file with its own columns. Columns that the table cannot
  // hold are left out.
  void add(std::string& text, const std::vector<std::string>& names, const std::vector<Cell>& cells,
           const Answer* answer) const;
  // Which of a row's own columns the table cannot hold, and why: a CSV holds no column that the
  // first row lacks, and no table holds one with the name of an added column. Empty: it holds them
  // all.
  std::string problem_of(const std::vector<std::string>& names) const;

 private:
  bool holds(const std::string& name) const;
  Cell text_of(int64_t token) const;
  // The values of the added columns, as JSON or null; of token `token` if there are tokens.
  std::vector<Cell> added_cells(const Answer* answer, size_t token) const;
  void add_row(std::string& text, const std::vector<std::string>& names,
               const std::vector<Cell>& cells, const std::vector<Cell>& added) const;

  TableFormat format_;
  std::vector<std::string> own_, added_;
  std::unordered_map<std::string, size_t> places_;  // of own_
  AnswerForm form_;
  DataInfo info_;
  bool all_scores_ = false;
  std::shared_ptr<const Tokenizer> tokenizer_;  // of answers of tokens; null: unknown
};

}  // namespace tanren
