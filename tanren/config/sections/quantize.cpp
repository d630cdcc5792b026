#include "tanren/config/fields.h"
#include "tanren/config/problems.h"

namespace tanren {

void fields(FieldList& add, QuantizeOptions& o) {
  add("scheme", &o.scheme,
      "Numbers that become 8-bit: none, weights, dynamic (weights, and inputs with a scale per row "
      "at run time), static (weights, and inputs with a scale per layer from a calibration).");
  add("keep", &o.keep,
      "Patterns of parameters that are not quantized (* any text, ? one character).");
  add("samples", &o.samples,
      "Samples of the training data on which ranges and errors are measured, ≥ 8.");
  add("range", &o.range,
      "static: range of a layer's inputs: mse (the range whose 8-bit values have the least squared "
      "error), minmax (all values seen).");
  add("tolerance", &o.tolerance, Identity::free,
      "Largest loss of quality that 8-bit layers may cause, ≥ 0: points of the metric, or per "
      "cent of a loss.");
}

void check_quantize(Problems& p, const RunConfig& config) {
  const auto& o = config.quantize;
  p.one_of("quantize.scheme", o.scheme, {"none", "weights", "dynamic", "static"});
  p.count("quantize.samples", o.samples, kFewestSamples);
  p.one_of("quantize.range", o.range, {"mse", "minmax"});
  p.not_negative("quantize.tolerance", o.tolerance);
  // tanren quantize measures all schemes under the other keys; a plan refuses them without one.
  if (o.scheme == "none") return;
  if (o.scheme != "static") p.unused("quantize.", {"range"}, "quantize.scheme", o.scheme);
  const std::string asked = "quantize.scheme \"" + o.scheme + "\"";
  const std::string& level = config.precision.level;
  p.check(level.empty() || level == "O0",
          asked + " makes 8-bit weights from fp32 ones, and precision.level is \"" + level +
              "\"; drop one of them");
  p.check(config.parallel.pipeline <= 1,
          asked + " needs the whole model on one rank; drop parallel.pipeline");
}

}  // namespace tanren
