// One window of rows: forwards over its batches, shared among ranks, and the answers in the order
// of the rows. Called by predict_file.
#pragma once

#include "tanren/predict/encoder.h"
#include "tanren/train/answers.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

struct WindowAnswers {
  std::vector<Answer> answers;      // of each row
  std::vector<std::string> broken;  // of each row: why there is no answer; empty: there is
  bool stopped = false;             // on some rank; some answers are missing
  int64_t cut = 0;                  // texts that were longer than the model reads
};

class WindowPredictor {
 public:
  // The references must outlive it. `batch`: samples of a batch; `most`: samples of a forward on
  // this rank.
  WindowPredictor(const RunState& run, const Parts& parts, const Encoder& encoder, AnswerForm form,
                  int64_t batch, int64_t most);

  // The answers to all samples, the same on every rank. Batch i is computed by rank i mod ranks, as
  // one rank would compute it. A sample whose outputs are NaN is broken. The next batch is made
  // while a forward runs, if that pays. A forward that does not fit into memory is halved, with a
  // line in the log; MemoryError if one sample does not fit. An exchange between ranks.
  // A stop is checked only if `may_stop`.
  WindowAnswers predict(std::vector<Sample> samples, bool may_stop);
  // How many numbers the answer to a sample has; `one`: a batch of one sample with the id 0.
  int64_t width(const Batch& one);

 private:
  void forward(const Batch& host, WindowAnswers& window);
  void share(const std::vector<std::vector<int64_t>>& batches, WindowAnswers& window) const;

  const RunState& run_;
  const Parts& parts_;
  const Encoder& encoder_;
  AnswerForm form_;
  int64_t batch_;
  int64_t most_;          // samples at once that memory allows
  bool is_slow_ = false;  // making a batch takes long enough for a thread of its own
};

}  // namespace tanren
