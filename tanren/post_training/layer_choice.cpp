#include "tanren/post_training/layer_choice.h"

#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/names.h"
#include "tanren/metrics/evaluation_metrics.h"
#include "tanren/post_training/calibration_samples.h"
#include "tanren/post_training/eight_bit_task.h"
#include "tanren/quantize/fold.h"
#include "tanren/train/build.h"
#include "tanren/train/evaluation_sums.h"

#include <fmt/format.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

constexpr const char* kKeep = "keep";
constexpr const char* kWorstFirst = "worst first";

// Passes what the task predicts for the batch, in the parts of an evaluation.
template <class See>
void predict_in_parts(const Task& task, const Batch& batch, const See& see) {
  if (!task.predict_rows) {
    see(task.predict(batch));
    return;
  }
  const PredictionRows rows = task.predict_rows(batch);
  const int64_t at_once = std::max<int64_t>(rows.at_once, 1);
  for (int64_t begin = 0; begin < rows.rows; begin += at_once) {
    see(rows.part(begin, std::min(begin + at_once, rows.rows)));
  }
}

// The outputs of a prediction; if it is in parts, those of the first part.
at::Tensor first_outputs(const Task& task, const Batch& batch) {
  if (!task.predict_rows) return task.predict(batch).outputs.to(at::kDouble);
  const PredictionRows rows = task.predict_rows(batch);
  const int64_t end = std::min(rows.rows, std::max<int64_t>(rows.at_once, 1));
  return rows.part(0, end).outputs.to(at::kDouble);
}

double squares_of(const at::Tensor& x) { return x.square().sum().item<double>(); }

std::optional<std::pair<double, double>> range_of(const std::optional<InputScale>& input) {
  if (!input) return std::nullopt;
  constexpr int32_t kLargestByte = 255;
  const double scale = input->scale;
  return std::pair(-input->zero_point * scale, (kLargestByte - input->zero_point) * scale);
}

// The bytes of a module's tensors, each tensor once.
int64_t bytes_of(const torch::nn::Module& module) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors_of(module)) {
    if (!tensor.has_storage() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

QuantizedParameters only(const QuantizedParameters& all, const std::vector<std::string>& names) {
  QuantizedParameters some;
  for (const std::string& name : names) some.emplace(name, all.at(name));
  return some;
}

// The metric over `samples`, each batch as `task` predicts it; no value if it is not finite or if
// the samples have nothing that counts.
std::optional<double> metric_over(const Task& task, const std::vector<Collated>& samples,
                                  const QuantizeMetric& metric, const TermWeights& weights) {
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*task.module);
  const bool is_loss = metric.name == "loss";
  EvaluationMetrics metrics(
      is_loss ? std::vector<std::string>() : std::vector<std::string>{metric.name}, at::kCPU);
  EvaluationSums sums;
  for (const Collated& some : samples) {
    predict_in_parts(task, some.batch, [&](const Prediction& prediction) {
      sums.add(prediction.terms);
      metrics.add(prediction.outputs, prediction.targets);
    });
    sums.add(some.counts);
  }
  double value = 0;
  try {
    const auto means = sums.means(weights);
    if (is_loss && means.terms.empty()) return std::nullopt;
    value = is_loss ? means.loss : value_in(metrics.result(means.terms, sums.counts()), metric);
  } catch (const NothingToEvaluate&) {
    return std::nullopt;
  }
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

}  // namespace

QuantizeNote SchemeWeights::note(const QuantizeOptions& asked, int64_t samples) const {
  QuantizeNote note;
  note.scheme = name(scheme);
  if (scheme == QuantizeScheme::calibrated) note.range = asked.range;
  note.samples = samples;
  note.kept = kept;
  for (const auto& [name, parameter] : parameters) note.readers[name] = parameter.reader;
  return note;
}

PostTraining::PostTraining(Task task, std::vector<Collated> samples, QuantizeOptions asked,
                           QuantizeMetric metric, TermWeights weights)
    : task_(std::move(task)),
      samples_(std::move(samples)),
      asked_(std::move(asked)),
      metric_(std::move(metric)),
      weights_(std::move(weights)) {
  if (!task_.predict && !task_.predict_rows) {
    throw ConfigError("[quantize] the task has no predict, which shows its layers; set it");
  }
  num_samples_ = checked_count(samples_);
  fp32_ = metric_over(task_, samples_, metric_, weights_);
  const Batch& first = samples_.front().batch;
  const Batch few = first.slice(0, std::min<int64_t>(first.size(), 2));
  found_ = find_readers(task_, few);
  readers_ = weights_to_quantize(found_, asked_.keep);
  (void)fold_batch_norms(task_, few);
}

std::string PostTraining::misfit(QuantizeScheme scheme) const {
  const auto reads = [&](std::initializer_list<WeightReader> wanted) {
    return std::any_of(readers_.begin(), readers_.end(), [&](const auto& item) {
      return std::find(wanted.begin(), wanted.end(), item.second) != wanted.end();
    });
  };
  using enum WeightReader;
  if (readers_.empty()) return "no weight is left that an 8-bit operator can read";
  if (scheme == QuantizeScheme::dynamic && !reads({linear, projection, embedding})) {
    return "dynamic leaves convolutions, and the model has no other layers";
  }
  if (scheme == QuantizeScheme::calibrated && !reads({linear, projection, convolution})) {
    return "no layer has an input to calibrate";
  }
  return "";
}

const InputScales& PostTraining::inputs() {
  if (!inputs_) {
    Calibration calibration(task_, readers_, from_word<RangeKind>(asked_.range));
    for (const Collated& some : samples_) calibration.predict(some.batch);
    inputs_ = calibration.inputs();
    constant_ = calibration.with_constant_input();
  }
  return *inputs_;
}

std::vector<PostTraining::Layer> PostTraining::layers_of(
    const QuantizedParameters& parameters) const {
  std::vector<Layer> layers;
  std::unordered_map<const at::TensorImpl*, size_t> known;
  const auto named = task_.module->named_parameters();
  for (const auto& item : named) {
    if (parameters.count(item.key()) == 0) continue;
    const auto [at, is_new] = known.emplace(item.value().unsafeGetTensorImpl(), layers.size());
    if (is_new) layers.emplace_back();
    layers[at->second].push_back(item.key());
  }
  return layers;
}

bool PostTraining::is_within(const QuantizedParameters& parameters) const {
  if (!fp32_ || parameters.empty()) return true;
  const EightBitTask quantised(task_, parameters);
  const EightBitTask::Scope scope(quantised);
  const auto value = metric_over(quantised.task(), samples_, metric_, weights_);
  return value && tanren::is_within(metric_, asked_.tolerance, *fp32_, *value);
}

std::vector<double> PostTraining::errors_of(const std::vector<Layer>& layers,
                                            const QuantizedParameters& parameters) const {
  const at::NoGradGuard no_grad;
  const EvalModeScope eval_mode(*task_.module);
  std::vector<EightBitTask> alone;
  alone.reserve(layers.size());
  for (const Layer& layer : layers) alone.emplace_back(task_, only(parameters, layer));
  std::vector<double> squares(layers.size(), 0);
  double all = 0;
  int64_t seen = 0;
  for (const Collated& some : samples_) {
    if (seen >= kErrorSamples) break;
    const Batch batch = some.batch.slice(0, std::min(some.batch.size(), kErrorSamples - seen));
    seen += batch.size();
    const at::Tensor wanted = first_outputs(task_, batch);
    all += squares_of(wanted);
    for (size_t i = 0; i < alone.size(); ++i) {
      const EightBitTask::Scope scope(alone[i]);
      squares[i] += squares_of(first_outputs(alone[i].task(), batch) - wanted);
    }
  }
  for (double& one : squares) one = one == 0 ? 0 : one / all;
  return squares;
}

void PostTraining::put_back(const std::vector<Layer>& layers, const std::vector<double>& errors,
                            SchemeWeights& made) const {
  std::vector<size_t> worst_first(layers.size());
  std::iota(worst_first.begin(), worst_first.end(), size_t{0});
  const auto size_of = [&](size_t i) {
    return std::isnan(errors[i]) ? std::numeric_limits<double>::infinity() : errors[i];
  };
  std::stable_sort(worst_first.begin(), worst_first.end(),
                   [&](size_t a, size_t b) { return size_of(a) > size_of(b); });
  for (const size_t layer : worst_first) {
    if (is_within(made.parameters)) return;
    for (const std::string& name : layers[layer]) {
      made.parameters.erase(name);
      made.kept[name] = kWorstFirst;
    }
    ++made.layers_kept;
  }
}

void PostTraining::fill_layers(const std::vector<Layer>& layers, const std::vector<double>& errors,
                               const QuantizedParameters& all, SchemeWeights& made) const {
  std::map<std::string, double> error_of;
  for (size_t i = 0; i < errors.size(); ++i) {
    for (const std::string& name : layers[i]) error_of[name] = errors[i];
  }
  const auto bytes = static_cast<double>(bytes_of(*task_.module));
  const auto named = task_.module->named_parameters();
  for (const ParameterReaders& parameter : found_) {
    const at::Tensor& tensor = *named.find(parameter.name);
    if (tensor.dim() < 2) continue;
    LayerResult layer;
    layer.name = parameter.name;
    if (parameter.reader) layer.reader = name(*parameter.reader);
    layer.shape = tensor.sizes().vec();
    layer.share = static_cast<double>(tensor.nbytes()) / bytes;
    layer.is_8_bit = made.parameters.count(parameter.name) > 0;
    if (const auto found = all.find(parameter.name); found != all.end()) {
      layer.input_range = range_of(found->second.input);
    }
    if (const auto found = error_of.find(parameter.name); found != error_of.end()) {
      layer.error = found->second;
    }
    const auto kept = made.kept.find(parameter.name);
    layer.why = kept != made.kept.end() ? kept->second : "within the tolerance";
    made.layers.push_back(std::move(layer));
  }
}

SchemeWeights PostTraining::weights(QuantizeScheme scheme, bool wants_errors) {
  SchemeWeights made;
  made.scheme = scheme;
  const bool is_static = scheme == QuantizeScheme::calibrated;
  const QuantizedParameters all =
      quantized_parameters(*task_.module, readers_, scheme, is_static ? inputs() : InputScales());
  made.parameters = all;
  const auto named = task_.module->named_parameters();
  for (const ParameterReaders& parameter : found_) {
    if (all.count(parameter.name) > 0 || named.find(parameter.name)->dim() < 2) continue;
    const bool is_read = parameter.reader.has_value();
    made.kept[parameter.name] = !is_read                                   ? parameter.why
                                : matches_any(asked_.keep, parameter.name) ? kKeep
                                                                           : "dynamic leaves "
                                                                             "convolutions";
  }
  const auto layers = layers_of(all);
  const bool fits = is_within(all);
  std::vector<double> errors;
  if (wants_errors || !fits) errors = errors_of(layers, all);
  if (!fits) put_back(layers, errors, made);
  fill_layers(layers, errors, all, made);
  return made;
}

}  // namespace tanren
