// Calibration: finds the range of the inputs that each weight's layer reads, by predicting sample
// batches, and makes the 8-bit weights. Not thread-safe; one forward at a time. Called by the code
// that quantises a model.
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

// The parameters in `found` (all parameters of a task) that an 8-bit operator can read and that no
// pattern of `keep` matches under any of their names. Throws a ConfigError for a pattern that
// matches no parameter at all.
WeightReaders weights_to_quantize(const std::vector<ParameterReaders>& found,
                                  const std::vector<std::string>& keep);

class Calibration {
 public:
  // Tracks the inputs of the weights that linear layers and convolutions read. Throws an Error for
  // a name that the task's module does not have, and for weights that are views of one buffer. Do
  // not move the module afterwards: its parameters must keep their storage.
  Calibration(Task task, const WeightReaders& readers, RangeKind range);
  ~Calibration();
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  // Runs an evaluation's forward, which computes the numbers that it would without a calibration.
  // `batch` has the module's dtypes. Throws an InputError that names the weight if its layer reads
  // a number that is not finite.
  void predict(const Batch& batch);

  int64_t num_samples() const { return num_samples_; }

  // The input scale of each tracked weight. Splitting the samples into other batches can change a
  // scale only through the forward's rounding: a range may then move by one step of its search
  // (range_tracker.h). Throws an InputError if fewer than kFewestSamples were predicted, or if no
  // layer read a weight.
  InputScales inputs() const;

  // The tracked weights whose layers have read only one number. Their bytes hold that number and 0
  // exactly, cover the numbers from 0 to twice it (0 to 255 if it is 0), and clip all others: it is
  // better not to quantise these weights.
  std::vector<std::string> with_constant_input() const;

 private:
  class Listener;

  Task task_;
  std::shared_ptr<Listener> listener_;
  int64_t num_samples_ = 0;
};

// The 8-bit weights of `readers`, with one scale per output channel. static: linear layers and
// convolutions need the scale of their input in `inputs`. dynamic: no input scales and no
// convolutions. weights: all weights, no input scales. none: empty. Throws an InputError that names
// the weight if it is neither fp32 nor bf16, is 8-bit already or has a number that is not finite.
// Throws an Error if an input scale is missing.
QuantizedParameters quantized_parameters(const torch::nn::Module& module,
                                         const WeightReaders& readers, QuantizeScheme scheme,
                                         const InputScales& inputs = {});

}  // namespace tanren
