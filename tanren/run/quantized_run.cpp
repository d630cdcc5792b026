#include "tanren/run/quantized_run.h"

#include "tanren/base/log.h"
#include "tanren/interop/export.h"
#include "tanren/interop/model_description.h"
#include "tanren/train/quantized_training.h"
#include "tanren/train/step_error.h"

#include <fmt/format.h>

#include <exception>

namespace tanren {

void begin_quantized_run(Prepared& prepared, bool tells) {
  const auto line = begin_quantized(prepared.plain, *prepared.quantization, prepared.plan,
                                    *prepared.datasets.train);
  if (!line) return;
  prepared.plan.lines.push_back(*line);
  if (tells) log(fmt::format("[quantize] {}: {}", line->value, line->reason));
}

void write_quantized(const Prepared& prepared, const RunState& state, const Parts& parts,
                     const std::filesystem::path& folder, RunOutput& output) {
  const Dataset& train = *prepared.datasets.train;
  RunConfig answers = prepared.config;
  if (answers.precision.mode == "fp64") answers.precision.mode = "fp32";
  try {
    output.quantized =
        export_quantized(state, parts, folder, describe_model(answers, train.info(), train.size()),
                         *prepared.quantization);
  } catch (const std::exception& error) {
    output.summary.unwritten = said_by(error);
  }
}

}  // namespace tanren
