// Encoder: samples → batches as the model reads them, by the same code that reads its evaluation
// data: the tokenizer, the scaling of columns, the transform of images. Labels, which a task's
// predict asks for, are placeholders. Immutable, so thread-safe. Called by Predictor and
// predict_rows.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/data_info.h"
#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/data/table_cells.h"
#include "tanren/data/text/text_table.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/predict/sample.h"
#include "tanren/train/answers.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

struct EncodedSamples {
  std::vector<Sample> samples;
  std::vector<std::string> broken;  // of each sample: why it cannot be predicted; empty: it can
  EncodedTexts texts;               // of the samples that have a text
  std::vector<int64_t> text_of;     // of each sample: its place in `texts`; -1: none

  // Tokens of sample `index`; 0: samples are all of one size.
  int64_t length(int64_t index) const;
};

class Encoder {
 public:
  // `config` and `info` as in a ModelDescription. ConfigError for texts without a tokenizer.
  Encoder(const RunConfig& config, DataInfo info, AnswerKind answers);

  // Tokenises texts, on all cores if there are many. A sample that lacks what the model reads is
  // marked as broken.
  EncodedSamples encode(std::vector<Sample> samples) const;
  // The samples at `indices` with their places as ids. Images are decoded here: those that turn out
  // broken are left out of the batch and marked in `broken` (sized as the samples).
  Batch batch(const EncodedSamples& samples, const std::vector<int64_t>& indices,
              std::vector<std::string>& broken) const;
  // One sample of the largest size that a batch may have, for dry runs; `like` gives the shapes of
  // data that are given as tensors.
  Batch probe(const Sample& like) const;

 private:
  void fill_numbers(const EncodedSamples& samples, const std::vector<int64_t>& indices,
                    Batch& batch) const;
  void fill_images(const EncodedSamples& samples, const std::vector<int64_t>& indices,
                   std::vector<std::string>& broken, Batch& batch) const;
  void fill_tensors(const EncodedSamples& samples, const std::vector<int64_t>& indices,
                    Batch& batch) const;
  float scaled(double number) const;
  // Encodes the cells and numbers of a table's sample; returns why it cannot.
  std::string take_columns(Sample& sample) const;
  std::string take_inputs(Sample& sample) const;
  std::string take_numbers(Sample& sample) const;
  std::string problem_of(const Sample& sample) const;
  void add_labels(Batch& batch) const;

  std::string model_kind_, task_;
  SourceOptions source_;
  DataInfo info_;
  AnswerKind answers_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // null: no texts
  int64_t pad_token_ = 0;
  std::optional<CellEncoder> cells_;  // of DataInfo::table; none: numbers are scaled alone
};

}  // namespace tanren
