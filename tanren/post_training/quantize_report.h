// QuantizeReport: all that a quantisation has measured and decided, as data, and its three texts.
// Filled by what quantises a model; the writers read nothing else. Plain values; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// The spread over repetitions.
struct Spread {
  double median = 0, lowest = 0, highest = 0;
};

// The difference of a metric to fp32's, paired by sample, with its 95 % interval; in the metric's
// unit.
struct Difference {
  double mean = 0, lower = 0, upper = 0;
};

// not_measured begins with this if an error ended the scheme; the error follows.
constexpr const char* kRefused = "refused: ";

struct SchemeResult {
  std::string name;                      // fp32, bf16, weights, dynamic, static
  std::string not_measured;              // why it doesn't apply; empty: it was measured
  double metric = 0;                     // over the evaluated samples
  std::optional<Difference> difference;  // none: fp32 itself, or a metric that no sample has alone
  int64_t tensor_bytes = 0;              // of the file's tensors
  std::optional<Spread> seconds_1, seconds_8;  // of one prediction of 1 and of 8 samples
  std::optional<Spread> ratio_1, ratio_8;      // to fp32's, in paired blocks
  int64_t peak_bytes = 0;   // while 8 samples are predicted, weights included; 0: not known
  int64_t layers_kept = 0;  // put back to fp32 to stay within the tolerance
  bool is_within_tolerance = false, is_written = false;
};

struct LayerResult {
  std::string name;    // of the weight
  std::string reader;  // linear, projection, convolution, embedding; empty: none can
  std::vector<int64_t> shape;
  std::optional<std::pair<double, double>> input_range;  // static: what the bytes cover
  std::optional<double> error;  // relative squared, of the outputs with this layer alone in 8 bits
  double share = 0;             // of the model's tensor bytes in fp32
  bool is_8_bit = false;        // in the written file
  std::string why;              // "within the tolerance", "keep", "narrow reads it", "worst first"
};

struct QuantizeReport {
  std::string model, data, metric, goal;  // goal: "max" or "min"
  double tolerance = 0;
  std::string tolerance_unit;  // "points" (hundredths of the metric) or "per cent" (of fp32's)
  int64_t calibration_samples = 0, evaluated_samples = 0;
  std::string processor, kernels;  // "AVX2 alone: plain integer loops", "VNNI", "AMX"
  std::vector<SchemeResult> schemes;
  std::vector<LayerResult> layers;   // of the written scheme
  std::string written, file;         // scheme and path; empty: none
  std::vector<std::string> remarks;  // "bf16 is faster than dynamic at batch 8: 0.71 of its time"
};

// For the console and quantize.txt: at most 100 columns, unless a name is too long.
std::string quantize_text_report(const QuantizeReport& report);
// One JSON object, with all digits of every number; null for what is not known.
std::string quantize_json_report(const QuantizeReport& report);
// A self-contained page, to be read or printed.
std::string quantize_html_report(const QuantizeReport& report);

}  // namespace tanren
