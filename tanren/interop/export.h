// Exports a finished run's weights: one safetensors file in the run folder, under the module's
// names. They are the weights of the best checkpoint if the run ranks checkpoints, otherwise of the
// run's end. They are averages if the run evaluated averages. The metadata holds the model's
// description (model_description.h). The file has two names. write_whole_model also writes 8-bit
// weights. The input scales of a quantisation-aware training are only in its 8-bit model.
#pragma once

#include "tanren/formats/safetensors.h"
#include "tanren/interop/quantize_note.h"
#include "tanren/quantize/fake_quantization.h"
#include "tanren/train/parts.h"
#include "tanren/train/run_state.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace tanren {

struct Exported {
  std::filesystem::path file;
  int64_t step = 0;
  bool averaged = false;
};

constexpr const char* kWholeFile = "model.tanren.safetensors";

// Writes folder/model.tanren.safetensors and model.safetensors, a second name for the same bytes.
// Each is written completely or not at all. The metadata holds the step, the kind of weights and
// `description`. `how`: for a quantisation-aware training, whose scales are left out; otherwise
// null. If the best checkpoint no longer exists, the next best is exported. If none exists, `run`
// itself is exported or, for a run in stages, its last checkpoint, read tensor by tensor
// (CheckpointError if there is none).
Exported export_weights(const RunState& run, const Parts& parts,
                        const std::filesystem::path& folder, const Metadata& description,
                        const FakeQuantization* how = nullptr);

constexpr const char* kQuantizedFolder = "quantized";

// Writes the same weights of a quantisation-aware training as its 8-bit model, with the input
// scales that it learned: folder/quantized/model.tanren.safetensors. fp64 tensors become fp32.
// Reports of tanren quantize in that folder are removed first. An earlier 8-bit model stays until
// this one is written completely. Returns the file. InputError as learned_parameters
// (quantize/fake_quantization.h), before anything is changed.
std::filesystem::path export_quantized(const RunState& run, const Parts& parts,
                                       const std::filesystem::path& folder,
                                       const Metadata& description, const FakeQuantization& how);

// Writes a whole model: its `tensors`, those of 16 bits as fp32, and its description in `metadata`
// (describe_model; format, step and weights as in export_weights). With `parameters`, these become
// 8-bit and the description has version 2 and `note`, with the readers of `parameters`. Without,
// the description has version 1, and the bytes are as before 8-bit weights existed. The file is
// written completely or not at all. InputError as with_quantized and quantize_text, for a scheme
// that is not the parameters' (is_weight_alone), for 8-bit tensors without their parameters, and
// for a parameter whose 8-bit numbers are not here (base/row_of_nan.h), before anything is written.
void write_whole_model(const std::filesystem::path& file, const TensorMap& tensors,
                       const Metadata& metadata, const QuantizedParameters& parameters = {},
                       QuantizeNote note = {});

// Returns a step folder's `tensors` without the scales that a quantisation-aware training keeps
// beside its weights. `run` has the values of the folder's run state, `config_toml` its config.
TensorMap plain_tensors(const TensorMap& tensors, const std::map<std::string, Value>& run,
                        const std::string& config_toml);

// The weights of a checkpoint as export_weights writes them: averaged if it has averages and they
// are wanted. The metadata has the kind of weights. CheckpointError as averages_in without a run.
SafetensorsFile checkpoint_weights(const std::filesystem::path& checkpoint, bool wants_average);

// The averages in a snapshot's `average` state, by the names of the weights and buffers that they
// replace. Leaves out those of objectives without an update of the average so far, because they are
// only the initial weights. Newer step folders list these (kNoAverage). Older ones lack this list
// and the second names of tensors, so `run` gives both. If `run` is null and a needed list is
// missing, CheckpointError naming the folder `from`.
TensorMap averages_in(const State& average, const RunState* run, const std::string& from);

// folder/model.safetensors, if it exists.
std::optional<std::filesystem::path> exported_weights(const std::filesystem::path& folder);

// The facts about the weights in the metadata of an exported file.
struct WeightsOrigin {
  int64_t step = 0;
  bool averaged = false;
};
WeightsOrigin weights_origin(const Metadata& metadata);

// Loads an exported file into a fresh `run`: weights, buffers and the step. Returns true if the
// weights are averaged.
bool load_exported(RunState& run, const std::filesystem::path& file);

}  // namespace tanren
