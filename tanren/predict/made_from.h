// Hashes of what predictions are made from, except the rows. With them, a start knows whether it
// may resume the rows of an earlier one. Called by predict_file.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/predict/described_model.h"

#include <filesystem>
#include <string>

namespace tanren {

// The hash of the weights and of the model's description.
std::string model_hash(const DescribedModel& model);

// The hash of the keys that change an answer or how it is written, and of the kind of file.
std::string settings_hash(const RunConfig& config, const std::filesystem::path& out);

}  // namespace tanren
