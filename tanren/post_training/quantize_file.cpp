#include "tanren/post_training/quantize_file.h"

#include "tanren/base/error.h"
#include "tanren/base/eval_mode_scope.h"
#include "tanren/base/file.h"
#include "tanren/base/names.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/data/collated.h"
#include "tanren/interop/export.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/ops/int8_gemm.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/post_training/eight_bit_task.h"
#include "tanren/post_training/layer_choice.h"
#include "tanren/post_training/paired_times.h"
#include "tanren/post_training/quantize_subject.h"
#include "tanren/run/short_waits.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/predict.h"
#include "tanren/train/prepared.h"

#include <ATen/core/grad_mode.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kResults[] = {kWholeFile, "quantize.txt", "quantize.json", "quantize.html"};
constexpr int64_t kTimedSamples = 8;

// One way to compute the model: in fp32 or bf16, or with 8-bit weights.
struct MeasuredWay {
  SchemeResult result;
  const Parts* parts = nullptr;
  SchemeWeights made;                       // empty: its weights are the model's own
  std::unique_ptr<EightBitTask> eight_bit;  // null likewise
  ValueBySample by_sample;
  int64_t num_nan = 0;  // samples with a NaN among their outputs
};

// Within it the state answers the way's way.
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

fs::path result_folder(const QuantizeInput& input, const fs::path& file) {
  fs::path out = input.out.empty() ? file.parent_path() / "quantized" : input.out;
  std::error_code none;
  if (fs::exists(out / "config.toml", none) || fs::exists(out / "checkpoints", none) ||
      fs::equivalent(out / kWholeFile, file, none)) {
    throw ConfigError("[quantize] " + out.string() +
                      " has the model itself, or is the folder of a run; name another one with "
                      "--out");
  }
  for (const char* name : kResults) {
    if (input.replaces || !fs::exists(out / name, none)) continue;
    throw ConfigError("[quantize] " + (out / name).string() +
                      " is there; replace it with --force, or name another folder with --out");
  }
  fs::path above = fs::absolute(out);
  while (!fs::exists(above, none) && above.has_relative_path()) above = above.parent_path();
  if (!fs::is_directory(above, none) || ::access(above.c_str(), W_OK) != 0) {
    throw ConfigError("[quantize] cannot write into " + out.string() + ", since " + above.string() +
                      " is no folder that this user may write to; name another one with --out");
  }
  return out;
}

std::vector<Collated> calibration_batches(const QuantizeSubject& subject) {
  const auto at_once = static_cast<size_t>(std::max<int64_t>(subject.parts.plan.evaluate.batch, 1));
  const std::vector<int64_t>& all = subject.calibration;
  std::vector<Collated> batches;
  for (size_t begin = 0; begin < all.size(); begin += at_once) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = std::min(at_once, all.size() - begin);
    batches.push_back(
        collated(subject.calibrates(), {from, from + static_cast<std::ptrdiff_t>(count)}));
    batches.back().batch = prepared(batches.back().batch, subject.state.task, subject.fp32);
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

  // The metric over the data that judge; `fp32` is null for fp32 itself.
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

  // The file's tensors, the times and the peak of each. The first is fp32.
  void cost(const std::vector<MeasuredWay*>& ways, const Batch& samples) {
    const auto own = tensors_of(*subject_.state.task.module);
    for (MeasuredWay* way : ways) {
      way->result.tensor_bytes = tensor_bytes(
          way->made.parameters.empty() ? own : with_quantized(own, way->made.parameters));
    }
    for (const int64_t size : {int64_t{1}, kTimedSamples}) {
      const Batch batch = samples.slice(0, size);
      std::vector<TimedBlock> blocks;
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

  // The weights that the way needs, and what one prediction takes beside them. The other ways'
  // weights, which are in memory, too, are not counted.
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
  report.remarks.push_back(fmt::format(
      "layers go back to fp32 by the {} of the calibration samples; errors of layers are of the "
      "first {} of them",
      metric.name, std::min<int64_t>(kErrorSamples, std::ssize(subject.calibration))));
  if (subject.parts.plan.precision.mode == Mode::bf16) {
    report.remarks.emplace_back("what is not 8-bit computes in bf16 under the 8-bit schemes");
  }
  if (int8_kernel() != Int8Kernel::onednn) {
    report.remarks.emplace_back(
        std::string("this processor lacks VNNI, so 8-bit layers are slow on it") +
        (machine.cpu_bf16 ? "; where speed counts, precision.mode = \"bf16\" may be better" : ""));
  }
  return report;
}

void write_results(const fs::path& out, const MeasuredWay* written, const QuantizeSubject& subject,
                   int64_t samples, const QuantizeReport& report) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) {
    throw ConfigError("[quantize] cannot make the folder " + out.string() + ": " + error.message() +
                      "; name another one with --out");
  }
  if (written != nullptr) {
    write_whole_model(out / kWholeFile, tensors_of(*subject.state.task.module), subject.metadata,
                      written->made.parameters, written->made.note(subject.asked, samples));
  }
  if (written == nullptr) fs::remove(out / kWholeFile, error);  // that of an earlier report
  write_file(out / "quantize.txt", quantize_text_report(report));
  write_file(out / "quantize.json", quantize_json_report(report) + "\n");
  write_file(out / "quantize.html", quantize_html_report(report));
}

// The schemes that were asked for, each as far as it applies.
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
    if (!way.result.not_measured.empty()) continue;
    way.made = training.weights(scheme, /*wants_errors=*/true);
    way.result.layers_kept = way.made.layers_kept;
    if (!way.made.parameters.empty()) {
      way.eight_bit = std::make_unique<EightBitTask>(training.task(), way.made.parameters);
    } else if (way.made.layers_kept > 0) {
      way.result.not_measured = "every layer went back to fp32 for the tolerance";
    } else {
      way.result.not_measured = "no weight is left that it makes 8-bit";
    }
  }
  return ways;
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
  // A weight of one element a row has more bytes with its scale than in fp32.
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

  // Before norms are folded: fp32 is the model as it was trained.
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

  const std::vector<Collated> batches = calibration_batches(subject);
  PostTraining training(subject.state.task, batches, subject.asked, metric);
  std::vector<MeasuredWay> ways = eight_bit_ways(subject, training);
  std::vector<MeasuredWay*> all{&fp32};
  if (has_bf16) all.push_back(&bf16);
  for (MeasuredWay& way : ways) {
    if (!way.result.not_measured.empty()) continue;
    measurement.evaluate(way, &fp32);
    all.push_back(&way);
  }
  std::vector<int64_t> timed = subject.calibration;
  timed.resize(kTimedSamples);
  measurement.cost(all, collated(subject.calibrates(), timed).batch);

  for (const std::string& name : training.with_constant_input()) {
    report.remarks.push_back(name +
                             " has read one number alone while it was calibrated, and static clips "
                             "all others; quantize.keep leaves it in fp32");
  }
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
    if (!written->result.is_within_tolerance) {
      report.remarks.push_back(written->result.name +
                               " is beyond the tolerance, and written since it was asked for");
    }
  }
  if (input.writes) input.writes();
  write_results(out, written, subject, training.num_samples(), report);
  return report;
}

}  // namespace tanren
