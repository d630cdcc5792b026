// AnswerTensors: predictions as numbers for a safetensors file. While they are made, they are
// stored as records of one size, so that the file grows and resumes like the rows of a table.
// Called by predict_file.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/train/answers.h"

#include <filesystem>
#include <string>

namespace tanren {

class AnswerTensors {
 public:
  // `all_scores`: the scores of all classes are written. ConfigError for answers that have no one
  // size (of tokens).
  AnswerTensors(AnswerForm form, DataInfo info, bool all_scores);

  // Appends the record of one sample. `answer` null: there is none; its label is -1, and its
  // numbers are NaN.
  void add(std::string& bytes, const Answer* answer) const;
  // Writes the records of the file `from` as the safetensors file `to`: "label" int64 [n], "score"
  // [n] and, of all classes, "scores" [n, classes]; or "values" [n, values]. The metadata have the
  // names of the classes.
  void write(const std::filesystem::path& from, const std::filesystem::path& to) const;

 private:
  int64_t width() const { return classes_ && !all_scores_ ? 0 : form_.width; }
  size_t record_bytes() const;

  AnswerForm form_;
  DataInfo info_;
  bool classes_ = false, all_scores_ = false;
};

}  // namespace tanren
