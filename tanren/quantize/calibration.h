// Calibration: the range of what each weight's layer reads, from predictions of sample batches; and
// the 8-bit weights that follow. Not thread-safe; one forward at a time. Called by what quantises a
// model.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/base/task.h"
#include "tanren/plan/plan.h"
#include "tanren/quantize/quantized_parameters.h"
#include "tanren/quantize/readers.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tanren {

// Parameters that become 8-bit, by their names in the task, and the operator that reads each.
using WeightReaders = std::map<std::string, WeightReader, std::less<>>;

// By the names of weights.
using InputScales = std::map<std::string, InputScale, std::less<>>;

// Those of `found`, the parameters of a task, that an 8-bit operator can read and no pattern of
// `keep` matches by any of its names. Throws a ConfigError for a pattern that matches none of all
// parameters.
WeightReaders weights_to_quantize(const std::vector<ParameterReaders>& found,
                                  const std::vector<std::string>& keep);

class Calibration {
 public:
  // Tracks the inputs of the weights that linear layers and convolutions read. Throws an Error for
  // a name that the task's module does not have, and for weights that are views of one buffer. The
  // module stays where it is from now on.
  Calibration(Task task, const WeightReaders& readers, RangeKind range);
  ~Calibration();
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  // Runs an evaluation's forward, which computes the numbers that it would without a calibration.
  // `batch` has the module's dtypes. Throws an InputError that names the weight if its layer reads
  // a number that is not finite.
  void predict(const Batch& batch);

  int64_t num_samples() const { return num_samples_; }

  // Of each tracked weight. A split of the samples into other batches changes nothing but what it
  // changes in the forward: where that rounds in another way, a range may move by a step of its
  // search (range_tracker.h). Throws an InputError if fewer than kFewestSamples were predicted, or
  // if no layer read a weight.
  InputScales inputs() const;

  // The tracked weights whose layers have read nothing but one number. Their bytes hold that number
  // and 0 exactly, and clip all others: such a weight is better kept.
  std::vector<std::string> with_constant_input() const;

 private:
  class Listener;

  Task task_;
  std::shared_ptr<Listener> listener_;
  int64_t num_samples_ = 0;
};

// The 8-bit weights of `readers`, with a scale per output channel. static: with the scales of
// inputs, of which linear layers and convolutions need one. dynamic: without, and without
// convolutions. weights: all, without scales of inputs. none: empty. Throws an InputError, which
// names the weight, if it is neither fp32 nor bf16, is 8-bit already or has a number that is not
// finite, and an Error if the scale of an input is missing.
QuantizedParameters quantized_parameters(const torch::nn::Module& module,
                                         const WeightReaders& readers, QuantizeScheme scheme,
                                         const InputScales& inputs = {});

}  // namespace tanren
