// PostTraining: from a task in fp32 to its 8-bit weights. Folds batch norms, finds the operators
// that read each weight, calibrates, and puts layers back, worst first, where the metric of the
// calibration samples is not within the tolerance. It never reads the data on which the schemes are
// evaluated in the end. Not thread-safe. Called by quantize_model.h and quantize_file.h.
#pragma once

#include "tanren/base/task.h"
#include "tanren/config/run_config.h"
#include "tanren/data/dataset.h"
#include "tanren/interop/quantize_note.h"
#include "tanren/plan/words.h"
#include "tanren/post_training/quantize_metric.h"
#include "tanren/post_training/quantize_report.h"
#include "tanren/quantize/calibration.h"
#include "tanren/train/evaluation_sums.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// Errors of layers are measured on the first of the calibration samples, at most this many.
constexpr int64_t kErrorSamples = 64;

// What a scheme makes of a model.
struct SchemeWeights {
  QuantizeScheme scheme = QuantizeScheme::none;
  QuantizedParameters parameters;           // empty: every layer stays
  std::map<std::string, std::string> kept;  // parameters that stay → why
  int64_t layers_kept = 0;                  // put back for the tolerance
  std::vector<LayerResult> layers;          // parameters of two dims or more, in the model's order

  // What the file records of the quantisation: the range from `asked`, and `samples`, the number of
  // samples that calibrated.
  QuantizeNote note(const QuantizeOptions& asked, int64_t samples) const;
};

class PostTraining {
 public:
  // Folds the task's batch norms for good. `samples`: batches that calibrate, in the module's dtype
  // and on the CPU, none of them empty. `weights`: of the terms, if the metric is the loss.
  // InputError if the samples are fewer than kFewestSamples, ConfigError for a task without predict
  // and for a pattern of `asked.keep` that matches no parameter; Errors as find_readers and
  // fold_batch_norms.
  PostTraining(Task task, std::vector<Collated> samples, QuantizeOptions asked,
               QuantizeMetric metric, TermWeights weights);

  // Why the scheme makes nothing of this model; empty: it applies.
  std::string misfit(QuantizeScheme scheme) const;

  // The module has its own weights again when this returns. Errors as Calibration, which names the
  // layer whose inputs are not finite, and as quantized_parameters. Each layer's error is measured
  // if `wants_errors` or if layers have to be put back. If the metric has no value, no layer is put
  // back.
  SchemeWeights weights(QuantizeScheme scheme, bool wants_errors);

  // The weights whose layers have read only one number; empty before weights(static).
  const std::vector<std::string>& with_constant_input() const { return constant_; }

  const Task& task() const { return task_; }
  int64_t num_samples() const { return num_samples_; }
  // Whether the metric has a value over the samples, so that layers can be put back.
  bool has_metric() const { return fp32_.has_value(); }

 private:
  using Layer = std::vector<std::string>;  // the names of one parameter

  const InputScales& inputs();
  std::vector<Layer> layers_of(const QuantizedParameters& parameters) const;
  bool is_within(const QuantizedParameters& parameters) const;
  std::vector<double> errors_of(const std::vector<Layer>& layers,
                                const QuantizedParameters& parameters) const;
  void put_back(const std::vector<Layer>& layers, const std::vector<double>& errors,
                SchemeWeights& made) const;
  void fill_layers(const std::vector<Layer>& layers, const std::vector<double>& errors,
                   const QuantizedParameters& all, SchemeWeights& made) const;

  Task task_;
  std::vector<Collated> samples_;
  QuantizeOptions asked_;
  QuantizeMetric metric_;
  TermWeights weights_;
  int64_t num_samples_ = 0;
  std::optional<double> fp32_;  // the metric over the samples
  std::vector<ParameterReaders> found_;
  WeightReaders readers_;
  std::optional<InputScales> inputs_;
  std::vector<std::string> constant_;
};

}  // namespace tanren
