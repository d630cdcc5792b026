// predict_file: what `tanren predict` does, without the terminal: a model's answers to every row of
// a file, written beside the row. Rows come in windows of some batches; a window is sorted by
// length, cut into batches, shared among the ranks batch by batch, and written in the order of the
// source. So neither the number of ranks nor an interruption between two windows changes a byte.
#pragma once

#include "tanren/train/registry.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

struct PredictInput {
  std::filesystem::path model;   // as described_model
  std::filesystem::path source;  // as open_rows; "-": standard input
  std::filesystem::path out;     // .csv, .jsonl or .safetensors; empty: predictions_file_of(source)
  bool replaces = false;         // an existing file
  std::vector<std::string> sets;
  const std::atomic<bool>* stop = nullptr;  // set: keep the whole rows, and stop
  // Called once `stop` is checked regularly. Before that, while data are opened and tokenized, the
  // process may be killed at any moment.
  std::function<void()> hears;
  // Takes the rows, if neither `out` nor the source names a file for them.
  std::function<void(std::string_view)> print;
};

struct PredictOutput {
  // The whole file, or the part if rows were written before a stop; empty: none.
  std::filesystem::path out;
  int64_t rows = 0;      // of the source that are done, those of earlier starts included
  int64_t broken = 0;    // of these, without a prediction
  int64_t written = 0;   // rows of the file, of a model of tokens; 0: unknown, or one for each
  int64_t began_at = 0;  // rows that earlier starts had done
  bool stopped = false;
  bool is_first = true;  // this process is rank 0
  std::string weights;   // which ones: DescribedModel::weights
  double seconds = 0;
};

// "new.csv" → "new.predictions.csv", beside the source. Empty for standard input by any name ("-",
// /dev/stdin, /dev/fd/N), a pipe or a device.
std::filesystem::path predictions_file_of(const std::filesystem::path& source);

// The processes of a launcher share the rows. Errors are InputErrors for all that the user can fix
// (the rows that were done before stay, and the same call goes on there); RunError otherwise.
PredictOutput predict_file(const PredictInput& input, const Registry& registry);

}  // namespace tanren
