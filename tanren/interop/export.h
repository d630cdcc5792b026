// Exports a finished run's weights: one safetensors file in the run folder, under the module's
// names. They are the weights of the best checkpoint if the run ranks checkpoints, else of the
// run's end; averaged if the run evaluated averages. The metadata holds the model's description
// (model_description.h). The file has two names. write_whole_model also writes 8-bit weights. What
// a quantisation-aware training has beside its weights is in none but its 8-bit model.
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

// Writes folder/model.tanren.safetensors and model.safetensors, a second name for the same bytes;
// each is written completely or not at all. The metadata holds the step, the kind of weights and
// `description`. `how`: of a quantisation-aware training, whose scales are left out; null: none. If
// the best checkpoint no longer exists, the next best is exported, and in the end `run` itself; of
// a run in stages, its last checkpoint, read tensor by tensor (CheckpointError if there is none).
Exported export_weights(const RunState& run, const Parts& parts,
                        const std::filesystem::path& folder, const Metadata& description,
                        const FakeQuantization* how = nullptr);

constexpr const char* kQuantizedFolder = "quantized";

// The same weights of a quantisation-aware training as its 8-bit model, with the scales of inputs
// that it learned: folder/quantized/model.tanren.safetensors. fp64 tensors become fp32. Reports of
// tanren quantize that lie there go first. An earlier 8-bit model stays until this one is written
// completely. Returns the file. InputError as learned_parameters (quantize/fake_quantization.h),
// before anything is changed.
std::filesystem::path export_quantized(const RunState& run, const Parts& parts,
                                       const std::filesystem::path& folder,
                                       const Metadata& description, const FakeQuantization& how);

// Writes a whole model: its `tensors`, those of 16 bits as fp32, and its description in `metadata`
// (describe_model; format, step and weights as export_weights has them). With `parameters` these
// become 8-bit and the description is of version 2, with `note`, whose readers are those of
// `parameters`; without, the description is of version 1, and bytes are as ever. Whole or absent.
// InputError as with_quantized and quantize_text, for a scheme that is not the parameters'
// (is_weight_alone), for 8-bit tensors without their parameters, and
// for a parameter whose 8-bit numbers are not here (base/row_of_nan.h), before anything is written.
void write_whole_model(const std::filesystem::path& file, const TensorMap& tensors,
                       const Metadata& metadata, const QuantizedParameters& parameters = {},
                       QuantizeNote note = {});

// The tensors of the plain model among those of a step folder with these values of the run's state
// and this config: without the scales that a quantisation-aware training has beside them.
TensorMap plain_tensors(const TensorMap& tensors, const std::map<std::string, Value>& run,
                        const std::string& config_toml);

// The weights of a checkpoint as export_weights writes them: averaged if it has averages and they
// are wanted. The metadata has the kind of weights. CheckpointError as averages_in without a run.
SafetensorsFile checkpoint_weights(const std::filesystem::path& checkpoint, bool wants_average);

// The averages in a snapshot's state of them, by the names of the weights and buffers whose place
// they take; none of an objective that has no average yet. Older step folders do not name those of
// such an objective (kNoAverage), which are its weights at the start, nor the second names of a
// tensor: `run`, which has the objectives, names them. CheckpointError for such a folder without
// those of an objective, `from`, without a run (null).
TensorMap averages_in(const State& average, const RunState* run, const std::string& from);

// folder/model.safetensors, if it exists.
std::optional<std::filesystem::path> exported_weights(const std::filesystem::path& folder);

// What the metadata of an exported file say of its weights.
struct WeightsOrigin {
  int64_t step = 0;
  bool averaged = false;
};
WeightsOrigin weights_origin(const Metadata& metadata);

// Loads an exported file into a fresh `run`: weights, buffers and the step. Returns true if the
// weights are averaged.
bool load_exported(RunState& run, const std::filesystem::path& file);

}  // namespace tanren
