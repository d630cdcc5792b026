// Rows: what tanren predict is asked about, one after the other, each with the columns that it came
// with. Invariant: the same source gives the same rows in the same order; memory does not grow with
// it. One thread; called by predict_file.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/hash.h"
#include "tanren/config/run_config.h"
#include "tanren/data/registry.h"
#include "tanren/data/text/line_reader.h"
#include "tanren/predict/sample.h"
#include "tanren/run/answer_table.h"
#include "tanren/train/answers.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

struct Row {
  std::string place;  // "new.csv:17", for messages
  std::vector<std::string>
      names;                // of `cells`, where each row has its own (JSON lines); else empty
  std::vector<Cell> cells;  // one for each of the source's columns, or of `names`
  Sample sample;
  int64_t positions = -1;  // positions with a token, if the sample is padded; -1: all
  std::string broken;      // why there is no sample; empty: there is
};

struct RowOptions {
  const std::atomic<bool>* stop = nullptr;  // ends the wait for standard input or a pipe
  std::filesystem::path out;                // the written file, which is no row; empty: none
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  // The next row; false at the end. DataError for what is wrong with the whole source;
  // StoppedReading.
  virtual bool next(Row& row) = 0;
  // Whether next() need not wait, as LineReader::is_ready.
  virtual bool is_ready() { return true; }
  // The columns of the rows; if each row has its own, those of the first row.
  const std::vector<std::string>& columns() const { return columns_; }
  // A hash of all rows that were handed out: two sources with the same hash gave the same rows so
  // far.
  uint64_t print() const { return print_.value(); }
  // print() with the modification times of files whose contents are no part of it. Two starts with
  // the same value read the same rows. A copy on another machine may have another value.
  uint64_t begun() const { return print_.value() ^ times_; }
  // How many texts of each category training did not have, in words; empty: none.
  virtual std::string unknown_text() const { return ""; }
  // A sample that is about as large as samples get, for dry runs; `first` is that of the first row,
  // which may be broken.
  virtual Sample largest(const Sample& first) const { return first; }

 protected:
  std::vector<std::string> columns_;
  Hash64 print_;
  uint64_t times_ = 0;
};

// Opens what the model's kind of data is read from: a table (.csv, .tsv, .jsonl), a text with a
// sample a line, a folder of images in depth or one image, a file of tensors or tokens; "-":
// standard input, lines for models of texts and a CSV for models of tables. Labels are not needed
// and not read. DataError naming the file if it is empty, of another kind, mixed, or if its columns
// are not those that the model was trained on (both lists); InputError if there is none.
std::unique_ptr<RowSource> open_rows(const std::filesystem::path& source, const RunConfig& config,
                                     const DataInfo& info, const DatasetRegistry& kinds,
                                     AnswerKind answers, const RowOptions& options = {});

// The end of the name, in small letters: ".csv".
std::string ending_of(const std::filesystem::path& file);

// One for each kind of source.
std::unique_ptr<RowSource> open_line_rows(const std::filesystem::path& source,
                                          const RunConfig& config,
                                          const std::atomic<bool>* stop = nullptr);
std::unique_ptr<RowSource> open_table_rows(const std::filesystem::path& source,
                                           const RunConfig& config, const DataInfo& info,
                                           const std::atomic<bool>* stop = nullptr);
std::unique_ptr<RowSource> open_json_rows(const std::filesystem::path& source,
                                          const RunConfig& config, const DataInfo& info,
                                          const std::atomic<bool>* stop = nullptr);
std::unique_ptr<RowSource> open_image_rows(const std::filesystem::path& source, bool skips,
                                           const std::filesystem::path& out = {});
std::unique_ptr<RowSource> open_tensor_rows(const std::filesystem::path& source,
                                            const RunConfig& config, const DataInfo& info,
                                            const DatasetRegistry& kinds, AnswerKind answers);

}  // namespace tanren
