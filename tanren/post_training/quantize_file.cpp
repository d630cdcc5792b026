#include "tanren/post_training/quantize_file.h"

#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/names.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/interop/export.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/ops/int8_gemm.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/post_training/calibration_samples.h"
#include "tanren/post_training/eight_bit_task.h"
#include "tanren/post_training/layer_choice.h"
#include "tanren/post_training/paired_times.h"
#include "tanren/post_training/quantize_remarks.h"
#include "tanren/post_training/quantize_results.h"
#include "tanren/post_training/quantize_subject.h"
#include "tanren/run/short_waits.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <set>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kTimedSamples = 8;

// One way to compute the model: in fp32 or bf16, or with 8-bit weights.
struct MeasuredWay {
  SchemeResult result;
  const Parts* parts = nullptr;
  SchemeWeights made;                       // empty: its weights are the model's own
  std::unique_ptr<EightBitTask> eight_bit;  // null: the same
  ValueBySample by_sample;
  int64_t num_nan = 0;         // samples with a NaN among their outputs
  std::exception_ptr refused;  // the error that ended it
};

// Within it, the state predicts with the weights of the way.
class WayScope {
 public:
  WayScope(RunState& state, const MeasuredWay& way) : state_(state), own_(state.task) {
    if (way.eight_bit == nullptr) return;
    weights_ = std::make_unique<EightBitTask::Scope>(*way.eight_bit);
    state_.task = way.eight_bit->task();
  }
  ~WayScope() { state_.task = own_; }
  WayScope(const WayScope&) = delete;
  WayScope& operator=(const WayScope&) = delete;

 private:
  RunState& state_;
  Task own_;
  std::unique_ptr<EightBitTask::Scope> weights_;
};

std::vector<Collated> calibration_batches(const QuantizeSubject& subject) {
  auto batches =
      batches_of(subject.calibrates(), subject.calibration, subject.parts.plan.evaluate.batch);
  for (Collated& some : batches) {
    some.batch = prepared(some.batch, subject.state.task, subject.fp32);
  }
  return batches;
}

// The bytes of tensors, each memory once.
int64_t tensor_bytes(const TensorMap& tensors) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) {
    if (!seen.insert(tensor.const_data_ptr()).second) continue;
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

class Measurement {
 public:
  Measurement(QuantizeSubject& subject, QuantizeMetric metric)
      : subject_(subject), metric_(std::move(metric)) {}

  // Measures the metric on the evaluation data; `fp32` is null for fp32 itself.
  void evaluate(MeasuredWay& way, const MeasuredWay* fp32) {
    SampleValues by_sample(metric_);
    const auto see = [&](const Batch& samples, const Prediction& prediction) {
      by_sample.add(samples, prediction);
    };
    const WayScope scope(subject_.state, way);
    const auto report =
        tanren::evaluate(subject_.state, *way.parts, subject_.judges(), &told_, see);
    num_samples_ = report.samples;
    SchemeResult& result = way.result;
    result.metric = value_in(report, metric_);
    way.by_sample = by_sample.values();
    way.num_nan = by_sample.num_nan();
    if (fp32 == nullptr) {
      result.is_within_tolerance = true;
      return;
    }
    result.difference = paired_difference(way.by_sample, fp32->by_sample);
    result.is_within_tolerance =
        is_within(metric_, subject_.asked.tolerance, fp32->result.metric, result.metric);
  }

  // Measures the bytes of the file's tensors, the times and the peak memory of each way. The first
  // way is fp32.
  void cost(const std::vector<MeasuredWay*>& ways, const Batch& samples) {
    const auto own = tensors_of(*subject_.state.task.module);
    for (MeasuredWay* way : ways) {
      way->result.tensor_bytes = tensor_bytes(
          way->made.parameters.empty() ? own : with_quantized(own, way->made.parameters));
    }
    for (const int64_t size : {int64_t{1}, kTimedSamples}) {
      const Batch batch = samples.slice(0, size);
      std::vector<TimedBlock> blocks;
      blocks.reserve(ways.size());
      for (const MeasuredWay* way : ways) {
        blocks.emplace_back(
            [this, way, &batch](int64_t repeats) { return seconds_of(*way, batch, repeats); });
      }
      const auto times = paired_times(blocks);
      for (size_t i = 0; i < ways.size(); ++i) {
        SchemeResult& result = ways[i]->result;
        (size == 1 ? result.seconds_1 : result.seconds_8) = times[i].seconds;
        (size == 1 ? result.ratio_1 : result.ratio_8) = times[i].ratio;
      }
      if (size < kTimedSamples || !cpu_allocator_installed()) continue;
      for (MeasuredWay* way : ways) way->result.peak_bytes = peak_of(*way, batch);
    }
  }

  int64_t num_samples() const { return num_samples_; }

 private:
  double seconds_of(const MeasuredWay& way, const Batch& samples, int64_t repeats) const {
    const WayScope scope(subject_.state, way);
    const at::NoGradGuard no_grad;
    const EvalModeScope eval_mode(*subject_.state.task.module);
    const Batch batch = prepared(samples, subject_.state.task, *way.parts);
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < repeats; ++i) {
      const auto shortage = predict(subject_.state, *way.parts, batch, [](const Prediction&) {});
      if (shortage) {
        throw MemoryError(fmt::format("[quantize] out of memory with {} samples: {}", batch.size(),
                                      shortage->message));
      }
    }
    return seconds_since(begin);
  }

  // The bytes of the way's weights, plus the peak of one prediction above what was allocated
  // before. The weights of the other ways, which are in memory too, are not counted.
  int64_t peak_of(const MeasuredWay& way, const Batch& samples) const {
    restart_cpu_memory_peak();
    const int64_t before = cpu_memory_stats().live_bytes;
    (void)seconds_of(way, samples, 1);
    return cpu_memory_stats().recent_peak_bytes - before + way.result.tensor_bytes;
  }

  QuantizeSubject& subject_;
  QuantizeMetric metric_;
  std::string told_;
  int64_t num_samples_ = 0;
};

QuantizeReport begun_report(const QuantizeSubject& subject, const QuantizeMetric& metric,
                            const fs::path& model) {
  QuantizeReport report;
  report.model = model.string();
  report.data = subject.data;
  report.metric = metric.name;
  report.goal = metric.lower_is_better ? "min" : "max";
  report.tolerance = subject.asked.tolerance;
  report.tolerance_unit = metric.tolerance_unit();
  const Machine machine = probe_machine();
  report.processor = machine.cpu;
  report.kernels = std::string(int8_kernel_text(int8_kernel(), machine.cpu_amx_int8));
  report.remarks = subject.remarks;
  return report;
}

// Does a part of a scheme's work. An InputError ends only this scheme; the other schemes continue.
template <class Work>
void unless_refused(MeasuredWay& way, const Work& work) {
  if (!way.result.not_measured.empty()) return;
  try {
    work();
  } catch (const InputError& error) {
    way.refused = std::current_exception();
    way.result = {.name = way.result.name, .not_measured = kRefused + std::string(error.what())};
    way.eight_bit.reset();
    way.made = {};
  }
}

// The 8-bit schemes that were asked for, each with its weights or the reason why it has none.
std::vector<MeasuredWay> eight_bit_ways(const QuantizeSubject& subject, PostTraining& training) {
  std::vector<MeasuredWay> ways;
  using enum QuantizeScheme;
  const QuantizeScheme asked = from_word<QuantizeScheme>(subject.asked.scheme);
  for (const QuantizeScheme scheme : {weights, dynamic, calibrated}) {
    if (asked != none && scheme != asked) continue;
    MeasuredWay& way = ways.emplace_back();
    way.result.name = name(scheme);
    way.parts = &subject.parts;
    if (asked == none) way.result.not_measured = training.misfit(scheme);
    unless_refused(way, [&] {
      way.made = training.weights(scheme, /*wants_errors=*/true);
      way.result.layers_kept = way.made.layers_kept;
      if (!way.made.parameters.empty()) {
        way.eight_bit = std::make_unique<EightBitTask>(training.task(), way.made.parameters);
      } else if (way.made.layers_kept > 0) {
        way.result.not_measured = "every layer went back to fp32 for the tolerance";
      } else {
        way.result.not_measured = "no weight is left that it makes 8-bit";
      }
    });
  }
  return ways;
}

// Throws the first refusal if that left no scheme to measure.
void check_some_measured(const std::vector<MeasuredWay>& ways) {
  std::exception_ptr first;
  for (const MeasuredWay& way : ways) {
    if (way.result.not_measured.empty()) return;
    if (!first) first = way.refused;
  }
  if (first) std::rethrow_exception(first);
}

RemarkFacts facts_of(const QuantizeSubject& subject, const PostTraining& training,
                     const std::vector<const MeasuredWay*>& measured) {
  RemarkFacts facts;
  facts.has_metric = training.has_metric();
  facts.error_samples = std::min(kErrorSamples, training.num_samples());
  facts.computes_in_bf16 = subject.parts.plan.precision.mode == Mode::bf16;
  facts.has_8_bit_products = int8_kernel() == Int8Kernel::onednn;
  facts.has_vnni = probe_machine().cpu_vnni;
  for (const MeasuredWay* way : measured) {
    facts.nan.emplace_back(way->result.name, way->num_nan);
    if (way->made.scheme != QuantizeScheme::calibrated) continue;
    for (const std::string& name : training.with_constant_input()) {
      if (way->made.parameters.count(name) > 0) facts.constant.push_back(name);
    }
  }
  return facts;
}

MeasuredWay plain_way(const char* name, const Parts& parts) {
  MeasuredWay way;
  way.result.name = name;
  way.parts = &parts;
  return way;
}

}  // namespace

std::optional<size_t> cheapest_scheme(const std::vector<SchemeResult>& schemes) {
  int64_t fewest = 0, plain = std::numeric_limits<int64_t>::max();
  for (const SchemeResult& scheme : schemes) {
    if (scheme.name == "fp32") plain = scheme.tensor_bytes;
  }
  // A file that is not smaller than fp32's does not count. A weight with one element per row has
  // more bytes with its scale than in fp32.
  const auto counts = [&](const SchemeResult& scheme) {
    return scheme.not_measured.empty() && scheme.is_within_tolerance && scheme.name != "fp32" &&
           scheme.name != "bf16" && scheme.tensor_bytes < plain;
  };
  for (const SchemeResult& scheme : schemes) {
    if (!counts(scheme)) continue;
    fewest = fewest == 0 ? scheme.tensor_bytes : std::min(fewest, scheme.tensor_bytes);
  }
  const auto seconds = [](const SchemeResult& scheme) {
    return scheme.seconds_8 ? scheme.seconds_8->median : HUGE_VAL;
  };
  std::optional<size_t> best;
  for (size_t i = 0; i < schemes.size(); ++i) {
    if (!counts(schemes[i]) || schemes[i].tensor_bytes > fewest + fewest / 100) continue;
    if (!best || seconds(schemes[i]) < seconds(schemes[*best])) best = i;
  }
  return best;
}

QuantizeReport quantize_file(const QuantizeInput& input, const Registry& registry) {
  const fs::path out = result_folder(input, file_to_quantize(input.model));
  const auto opened = open_subject(input.model, input.data, input.sets, registry);
  QuantizeSubject& subject = *opened;
  if (input.out.empty() && !subject.trained_scheme.empty()) {
    throw ConfigError(fmt::format(
        "[quantize] {} was trained with quantize.scheme \"{}\", and {} is the place of its own "
        "8-bit model; name another folder with --out",
        input.model.string(), subject.trained_scheme, out.string()));
  }
  check_predicts(subject.state.task);
  check_matches("[quantize] keep", subject.asked.keep,
                subject.state.task.module->named_parameters().keys());
  const ShortWaits waits(subject.parts.plan.device.threads);
  EvaluateOptions measured = subject.config.evaluate;
  measured.metrics = subject.parts.plan.evaluate.metrics;  // those that fit
  const QuantizeMetric metric = deciding_metric(subject.config.checkpoint, measured);
  QuantizeReport report = begun_report(subject, metric, input.model);

  // Missing samples are reported before anything is measured.
  const std::vector<Collated> batches = calibration_batches(subject);
  (void)checked_count(batches);
  const Batch timed = first_given(subject.calibrates(), subject.calibration, kTimedSamples);

  // fp32 is measured before the norms are folded, because it is the model as it was trained.
  Measurement measurement(subject, metric);
  MeasuredWay fp32 = plain_way("fp32", subject.fp32), bf16 = plain_way("bf16", subject.bf16);
  measurement.evaluate(fp32, nullptr);
  const bool has_bf16 = probe_machine().cpu_bf16;
  if (has_bf16) {
    measurement.evaluate(bf16, &fp32);
  } else {
    bf16.result.not_measured =
        "this processor has no products in bf16, which takes many times as long";
  }

  PostTraining training(subject.state.task, batches, subject.asked, metric,
                        TermWeights(subject.state));
  std::vector<MeasuredWay> ways = eight_bit_ways(subject, training);
  std::vector<MeasuredWay*> all{&fp32};
  if (has_bf16) all.push_back(&bf16);
  for (MeasuredWay& way : ways) {
    unless_refused(way, [&] {
      measurement.evaluate(way, &fp32);
      all.push_back(&way);
    });
  }
  check_some_measured(ways);
  measurement.cost(all, timed);

  report.calibration_samples = training.num_samples();
  report.evaluated_samples = measurement.num_samples();
  report.schemes = {fp32.result, bf16.result};
  for (const MeasuredWay& way : ways) report.schemes.push_back(way.result);
  std::optional<size_t> chosen = cheapest_scheme(report.schemes);
  const bool is_named = subject.asked.scheme != "none";
  if (is_named && report.schemes.back().not_measured.empty()) chosen = report.schemes.size() - 1;
  const MeasuredWay* written = nullptr;
  if (chosen) {
    written = &ways[*chosen - 2];
    report.schemes[*chosen].is_written = true;
    report.written = written->result.name;
    report.file = (out / kWholeFile).string();
    report.layers = written->made.layers;
  }
  const auto told = remarks_of(report, facts_of(subject, training, {all.begin(), all.end()}));
  report.remarks.insert(report.remarks.end(), told.begin(), told.end());
  if (written != nullptr && !written->result.is_within_tolerance) {
    report.remarks.push_back(written->result.name +
                             " is beyond the tolerance, and written since it was asked for");
  }
  const auto write_model = [&](const fs::path& file) {
    write_whole_model(file, tensors_of(*subject.state.task.module), subject.metadata,
                      written->made.parameters,
                      written->made.note(subject.asked, training.num_samples()));
  };
  if (input.writes) input.writes();
  using WriteModel = std::function<void(const fs::path&)>;
  write_results(out, report, written != nullptr ? WriteModel(write_model) : nullptr);
  return report;
}

}  // namespace tanren
