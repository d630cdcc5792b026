// A whole model (interop/model_description.h) made ready to evaluate, predict or generate: its task
// has the file's weights from the start. Internal to run/ and predict/.
#pragma once

#include "tanren/interop/model_description.h"
#include "tanren/run/prepare.h"

#include <filesystem>
#include <memory>
#include <string>

namespace tanren {

// As prepare() without training. The training data are only described; `eval` may be null. `read`
// holds the weights, and `note` is what check_described returned for them; `what` names them in
// errors. The dry runs of the fit are of the model in fp32, so fit.standing_bytes is reduced by
// what 8-bit weights save. Errors as prepare and build_described.
Prepared prepare_whole(const ModelDescription& description, const SafetensorsFile& read,
                       const QuantizeNote& note, const std::string& what, const Registry& registry,
                       std::unique_ptr<Dataset> eval);

// Opens `data` as the description says of its evaluation data, and puts the path there; empty for
// kinds that read no file. `file` is the model's, `verb` begins errors ("eval"). ConfigError for a
// path that is missing or does not exist.
std::unique_ptr<Dataset> open_described(ModelDescription& description,
                                        const std::filesystem::path& data,
                                        const std::filesystem::path& file, const Registry& registry,
                                        const std::string& verb);

// ConfigError if the data of a registered kind do not exist. The library's own kinds report missing
// data themselves, and read patterns, too.
void check_is_there(const SourceOptions& source, const std::filesystem::path& data,
                    const std::string& verb);

// The state of a task from prepare_whole. It only evaluates, and is at the step in `metadata`.
RunState whole_state(Task task, const Parts& parts, const Metadata& metadata);

}  // namespace tanren
