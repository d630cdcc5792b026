// The description in the metadata of a whole model's file: all that is needed to use its weights
// (the [model] section with its sizes, how data are read, class names, tokenizer files). Written by
// a finished run. The metadata are untrusted: checked like a config, and no size or path in them is
// taken unchecked.
#pragma once

#include "tanren/base/data_info.h"
#include "tanren/base/task.h"
#include "tanren/config/known_kinds.h"
#include "tanren/config/run_config.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/quantize_note.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

// The metadata that accompanies the weights.
struct ModelDescription {
  RunConfig config;           // model, data, batch, precision, evaluate, generate; no paths
  DataInfo info;              // of the training data, with the tokenizer's files
  int64_t train_samples = 1;  // training samples; batch.global_batch = "epoch" refers to it
};

// Metadata of a model made from `resolved` (resolve_model) and data like `info`. The sections for
// training, paths, and the selection of files (include, exclude, part) are left out. Evaluation
// data are read as [data.eval] says, else as [data.train] without its augmentation.
Metadata describe_model(const RunConfig& resolved, const DataInfo& info, int64_t train_samples);

// The metadata of the same model with the 8-bit weights of `note`. Their version is 2, so that
// releases without support for 8-bit weights refuse them. InputError as quantize_text.
Metadata describe_quantized(Metadata model, const QuantizeNote& note);
// The metadata of the same model without 8-bit weights, whatever `model` says of them.
Metadata describe_floating(Metadata model);

// The metadata of the same model with the mode and level of `precision`; unchanged if they have
// these already. `file` names them in errors.
Metadata in_precision(Metadata model, const PrecisionOptions& precision,
                      const std::filesystem::path& file, const KnownKinds& known);

// The note on a model that a compiled graph computes. The model's file does not hold the graph.
struct PackageNote {
  std::string checksum, class_name;
  std::string hf_config;  // config.json for transformers; empty: there is none
};
// The metadata of the same model with the note of its task's graph, if it has one.
Metadata describe_package(Metadata model, const TaskFacts& facts);
// Reads the note; no value if the metadata have none. ConfigError naming `file` for a malformed
// one.
std::optional<PackageNote> package_note(const Metadata& metadata,
                                        const std::filesystem::path& file);

// How evaluation data are read, in whatever file or folder they are: as [data.eval] says, else as
// [data.train] without its augmentation. The tokenizer and the names of classes are training's.
SourceOptions evaluation_source(const DataOptions& data);

// Reads the metadata back; `sets` as on the command line. A model with 8-bit weights runs on the
// CPU, in precision.mode auto if it was trained in fp16, fp64 or under a level. ConfigError naming
// the file if the description is missing, of another version, or malformed, and for a requested
// precision or device that 8-bit weights do not support. Errors in the config as read_config.
ModelDescription description_of(const Metadata& metadata, const std::filesystem::path& file,
                                const std::vector<std::string>& sets, const KnownKinds& known);
// Whether the metadata describe a model at all.
bool describes_model(const Metadata& metadata);
// ConfigError: the description in `file` "asks for impossible sizes", or has another fault.
[[noreturn]] void refuse_description(const std::filesystem::path& file, const std::string& what);

}  // namespace tanren
