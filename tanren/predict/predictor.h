// Predictor: a trained model as a function of samples, without a file and without a run: the
// tokenizer or the transform of images is inside. Thread-safe: any number of threads may call
// predict() at once. For programs; `tanren predict` does the same for files.
#pragma once

#include "tanren/interop/whole_model.h"
#include "tanren/predict/encoder.h"
#include "tanren/predict/sample.h"
#include "tanren/train/answers.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

class Predictor {
 public:
  // Takes the model over; its module must not be used elsewhere meanwhile. A forward has at most
  // `batch` samples. ConfigError if the model's outputs are pictures, if its task has no predict,
  // or if it reads texts and has no tokenizer.
  explicit Predictor(WholeModel model, int64_t batch = 32);

  // What the model says of each sample, in their order; computed on the CPU, in the dtype that the
  // weights have in memory (fp32, or fp64 after a run in it). Unlike `tanren predict` it does not
  // look at precision.mode.
  // Samples of like length share a forward. DataError naming the first sample that the model cannot
  // read, by its place.
  std::vector<Answer> predict(std::vector<Sample> samples) const;

  // The name of the answer's class; its number if the classes have no names.
  std::string label_of(const Answer& answer) const { return class_text(model_.info, answer.label); }
  const WholeModel& model() const { return model_; }

 private:
  WholeModel model_;
  AnswerForm form_;
  Encoder encoder_;
  int64_t batch_;
};

}  // namespace tanren
