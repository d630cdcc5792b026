#include "tanren/predict/answer_writer.h"

#include "tanren/base/error.h"

#include <utility>

namespace tanren {

AnswerWriter::AnswerWriter(TableFormat format, std::vector<std::string> columns,
                           const AnswerForm& form, const DataInfo& info, bool all_scores) {
  if (format == TableFormat::tensors) {
    tensors_.emplace(form, info, all_scores);
  } else {
    table_.emplace(format, std::move(columns), form, info, all_scores);
  }
}

std::string AnswerWriter::header() const { return table_ ? table_->header() : ""; }

std::string AnswerWriter::problem_of(const Row& row, const std::string& of_answer) const {
  if (!row.broken.empty()) return row.broken;
  const std::string of_columns = table_ ? table_->problem_of(row.names) : "";
  return of_columns.empty() ? of_answer : of_columns;
}

void AnswerWriter::add(std::string& bytes, const Row& row, const Answer* answer) const {
  try {
    if (tensors_) {
      tensors_->add(bytes, answer);
    } else if (row.names.empty()) {
      table_->add(bytes, row.cells, answer);
    } else {
      table_->add(bytes, row.names, row.cells, answer);
    }
  } catch (const DataError& error) {
    throw DataError("[predict] " + row.place + ": " + error.what());
  }
}

void AnswerWriter::write(const std::filesystem::path& part,
                         const std::filesystem::path& file) const {
  tensors_->write(part, file);
}

}  // namespace tanren
