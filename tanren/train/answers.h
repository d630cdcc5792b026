// Answers: what a model's outputs say about each sample, for people: a class with its probability,
// values, or a probability for each token. Pure functions of the outputs, so that `tanren predict`,
// `tanren eval --predictions` and Predictor all say the same.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/run_config.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tanren {

// The model's answer for one token.
struct TokenAnswer {
  int64_t token = -1;         // the target that the data have; -1: none
  float log_probability = 0;  // of that target
  int64_t label = -1;         // the most probable token
  float score = 0;            // its log-probability
};

struct Answer {
  int64_t label = -1;               // classes: the one with the highest score; ties: the lower
  float score = 0;                  // its probability
  std::vector<float> scores;        // classes: the probability of each; values: the values
  std::vector<TokenAnswer> tokens;  // tasks of tokens: one for each position
  bool has_nan = false;             // the outputs hold NaN: the rest means nothing
};

// The text reported for a sample whose answer has NaN.
inline constexpr const char* kNanOutputs =
    "the model's outputs hold NaN; its weights or this input are out of range, or precision.mode "
    "is "
    "too narrow: try fp32";

enum class AnswerKind { classes, values, tokens };

struct AnswerForm {
  AnswerKind kind = AnswerKind::classes;
  bool sigmoid = false;  // values: logits of independent probabilities
  int64_t width = 0;     // classes or values of a sample; 0: unknown
};

// How this task's outputs are read. ConfigError if they are pictures. Error texts begin with `what`
// ("predict").
AnswerForm answer_form(const Task& task, const ModelOptions& model, const DataInfo& info,
                       const std::string& what);

// Collects the predictions of a batch, which may come in pieces.
class Answers {
 public:
  explicit Answers(AnswerForm form, std::string what) : form_(form), what_(std::move(what)) {}

  // ConfigError if a sample has no single answer (scores of each pixel). If it throws, nothing was
  // added. The scores of tokens are looked at in pieces of some MiB.
  void add(const Prediction& prediction);
  // The answers to the `samples` samples that were added since the last call, in their order.
  std::vector<Answer> take(int64_t samples);

 private:
  void add_samples(const at::Tensor& outputs);
  void add_tokens(const Prediction& prediction);

  AnswerForm form_;
  std::string what_;
  std::vector<Answer> answers_;
  std::vector<TokenAnswer> tokens_;
};

// The name of class `label`; its number if the classes have no names.
std::string class_text(const DataInfo& info, int64_t label);

}  // namespace tanren
