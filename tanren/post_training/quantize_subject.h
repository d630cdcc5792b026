// QuantizeSubject: what `tanren quantize` is given, made ready: the model in fp32 with its whole
// file's metadata, the samples that calibrate and those that judge. Called by quantize_file.h.
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
  std::unique_ptr<Dataset> later;  // DATA without its first samples; null: none is left out
  Metadata metadata;
  Parts parts, fp32, bf16;  // as the config has it, which is one of the others; on the CPU
  RunState state;
  std::vector<int64_t> calibration;  // numbers of samples in calibrates()
  std::vector<std::string> remarks;

  const Dataset& calibrates() const { return later ? *datasets.eval : *datasets.train; }
  const Dataset& judges() const { return later ? *later : *datasets.eval; }
};

// `file`: a folder of a finished run, which calibrates on its training data, as many samples apart
// from each other as they are, and is judged on its evaluation data or on `data`; or a whole
// model's file with `data`, whose first samples calibrate and are left out. ConfigError for a model
// that has 8-bit weights already, another precision than fp32 and bf16, precision.level, missing
// data, and too few samples; CheckpointError for a run that went on after its export; other errors
// as `tanren eval` has them.
std::unique_ptr<QuantizeSubject> open_subject(const std::filesystem::path& file,
                                              const std::filesystem::path& data,
                                              const std::vector<std::string>& sets,
                                              const Registry& registry);

// The whole model's file that `file` names: of a run folder, the one in it. CheckpointError if the
// run is not finished, ConfigError if it is neither.
std::filesystem::path file_to_quantize(const std::filesystem::path& file);

}  // namespace tanren
