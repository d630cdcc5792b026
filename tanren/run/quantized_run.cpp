#include "tanren/run/quantized_run.h"

#include "tanren/base/error_line.h"
#include "tanren/base/log.h"
#include "tanren/interop/export.h"
#include "tanren/interop/model_description.h"
#include "tanren/train/quantized_training.h"
#include "tanren/train/step_error.h"

#include <fmt/format.h>

#include <exception>
#include <string>

namespace tanren {

void begin_quantized_run(Prepared& prepared, bool tells) {
  const auto line = begin_quantized(prepared.plain, *prepared.quantization, prepared.plan,
                                    *prepared.datasets.train);
  if (!line) return;
  prepared.plan.lines.push_back(*line);
  if (tells) log(fmt::format("[quantize] {}: {}", line->value, line->reason));
}

void write_quantized(const Prepared& prepared, const RunState& state, const Parts& parts,
                     const std::filesystem::path& folder, RunOutput& output,
                     const std::function<void()>& write_summary) {
  const Dataset& train = *prepared.datasets.train;
  RunConfig answers = prepared.config;
  if (answers.precision.mode == "fp64") answers.precision.mode = "fp32";
  std::string& unwritten = output.summary.unwritten;
  unwritten = "[run] the 8-bit model is not written yet; start the run again to write it";
  write_summary();  // for a process that is killed from here on
  try {
    output.quantized =
        export_quantized(state, parts, folder, describe_model(answers, train.info(), train.size()),
                         *prepared.quantization);
    unwritten.clear();
  } catch (const std::exception& error) {
    unwritten = fmt::format(
        "[run] the 8-bit model could not be written: {}; free the place and start the run again",
        said_by(error));
  }
  try {
    write_summary();
  } catch (const std::exception& error) {
    if (!unwritten.empty()) {  // the first error ends the run
      log(line_of(error));
      return;
    }
    unwritten = fmt::format(
        "[run] the 8-bit model is written, and summary.json could not tell it: {}; free the place "
        "and start the run again",
        said_by(error));
  }
}

}  // namespace tanren
