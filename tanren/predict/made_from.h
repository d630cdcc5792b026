// Hashes of what predictions are made from beside the rows, by which a start knows whether it may
// go on with those of an earlier one. Called by predict_file.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/predict/described_model.h"

#include <filesystem>
#include <string>

namespace tanren {

// Of the weights and of what describes the model.
std::string model_hash(const DescribedModel& model);

// Of the keys that change an answer or how it is written, and of the kind of file.
std::string settings_hash(const RunConfig& config, const std::filesystem::path& out);

}  // namespace tanren
