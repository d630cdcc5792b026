// AnswerWriter: turns rows and their answers into the bytes of a table or of an AnswerTensors'
// records. predict_file calls problem_of() on every rank, so that all ranks know which rows have no
// prediction, and add() on rank 0.
#pragma once

#include "tanren/predict/answer_tensors.h"
#include "tanren/predict/rows.h"
#include "tanren/run/answer_table.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

class AnswerWriter {
 public:
  // `columns`: the columns of the rows. Errors as AnswerTensors.
  AnswerWriter(TableFormat format, std::vector<std::string> columns, const AnswerForm& form,
               const DataInfo& info, bool all_scores);

  // What the file begins with.
  std::string header() const;
  // Why the row has no prediction: it is broken, the file has no place for one of its columns, or
  // what is wrong with its answer. Empty: it has one.
  std::string problem_of(const Row& row, const std::string& of_answer) const;
  // Appends the row, without the columns that have no place. `answer` null: there is none.
  // DataError, with the row's place, if it cannot be written.
  void add(std::string& bytes, const Row& row, const Answer* answer) const;
  // If the format is tensors: turns the records of `part` into `file`.
  void write(const std::filesystem::path& part, const std::filesystem::path& file) const;

 private:
  std::optional<AnswerTable> table_;
  std::optional<AnswerTensors> tensors_;  // in place of a table
};

}  // namespace tanren
