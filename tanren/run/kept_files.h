// The files that a command reads. A table of predictions never replaces them, even if it may
// replace existing files. Called by predict_file and PredictionsWriter.
#pragma once

#include "tanren/config/run_config.h"

#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

// What may be replaced in a folder that is kept; never a .safetensors file.
enum class InFolder { tables, all_but_logs, nothing };

struct KeptFile {
  std::filesystem::path path;
  std::string what;  // "is the model", for messages
  InFolder inside = InFolder::all_but_logs;
};

// The model, in any of its forms, and of a run folder the data of its run.
std::vector<KeptFile> files_of_model(const std::filesystem::path& model);
// The paths that the config reads data from.
void add_data(const DataOptions& data, const std::string& what, std::vector<KeptFile>& files);

// Why `written` must stay as it is: the `what` of the kept file, or of the kept folder in which it
// lies. Empty: it may be written.
std::string kept_as(const std::filesystem::path& written, const std::vector<KeptFile>& files);

// Whether `file` lies in `folder` or below it; both need not be there.
bool lies_in(const std::filesystem::path& file, const std::filesystem::path& folder);

}  // namespace tanren
