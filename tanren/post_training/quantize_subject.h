// QuantizeSubject: the prepared input of `tanren quantize`: the model in fp32 with the metadata of
// its whole file, the samples that calibrate, and the samples for the evaluation. Called by
// quantize_file.h.
#pragma once

#include "tanren/data/dataset.h"
#include "tanren/formats/safetensors.h"
#include "tanren/run/prepare.h"
#include "tanren/train/parts.h"
#include "tanren/train/registry.h"
#include "tanren/train/run_state.h"

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tanren {

struct QuantizeSubject {
  std::filesystem::path file;  // of the whole model in fp32
  std::string data;            // in words, for the report
  QuantizeOptions asked;       // [quantize]
  std::string trained_scheme;  // of a quantisation-aware run; empty: it trained in floating numbers
  RunConfig config;            // as prepared, without [quantize]
  Datasets datasets;
  std::unique_ptr<Dataset> later;  // `data` without its first samples; null: a run folder
  Metadata metadata;
  Parts parts, fp32, bf16;  // parts: as the config; all on the CPU
  RunState state;
  std::vector<int64_t> calibration;  // indices of samples in calibrates()
  std::vector<std::string> remarks;

  const Dataset& calibrates() const { return later ? *datasets.eval : *datasets.train; }
  const Dataset& judges() const { return later ? *later : *datasets.eval; }
};

// `file` is the folder of a finished run, or a whole model's file. A run is calibrated on its
// training data, with samples as far apart as they can be, and evaluated on its evaluation data or
// on `data`. A whole model is calibrated on the first samples of `data` and evaluated on the
// others. ConfigError for a model that has 8-bit weights already, another precision than fp32 and
// bf16, precision.level, missing data, and too few samples. CheckpointError for a run that was
// resumed after its export. Other errors as for `tanren eval`.
std::unique_ptr<QuantizeSubject> open_subject(const std::filesystem::path& file,
                                              const std::filesystem::path& data,
                                              const std::vector<std::string>& sets,
                                              const Registry& registry);

// The whole model's file: `file` itself, or the one in the run folder `file`. CheckpointError if
// the run is not finished, ConfigError if `file` is neither.
std::filesystem::path file_to_quantize(const std::filesystem::path& file);

}  // namespace tanren
