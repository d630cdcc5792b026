#include "tanren/run/write_outputs.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/formats/png.h"
#include "tanren/train/pictures.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <span>

namespace tanren {

namespace {

namespace fs = std::filesystem;

// Makes the folder. Returns what is wrong with it, in one line; empty: nothing.
std::string problem_of(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    fs::create_directories(folder, error);
    if (!error) return "";
    return fmt::format("[eval] --out {} cannot be made: {}; name another folder", folder.string(),
                       error.message());
  }
  if (fs::is_directory(folder, error) && fs::is_empty(folder, error) && !error) return "";
  return fmt::format("[eval] --out {} is there and not an empty folder; name a new one",
                     folder.string());
}

// No rank writes before all know that rank 0 found the folder new.
void make_new_folder(const fs::path& folder, const Ranks& ranks) {
  std::string problem = ranks.world().is_first() ? problem_of(folder) : "";
  problem = gather_texts(ranks.world().communicator(), problem).front();
  if (!problem.empty()) throw ConfigError(problem);
}

std::string file_name(const Dataset& dataset, int64_t index) {
  const std::string name = dataset.sample_name(index);
  return (name.empty() ? fmt::format("sample-{:06}", dataset.source_row(index)) : name) + ".png";
}

// ConfigError if a sample's name points outside the folder, or if two samples have the same name.
void check_names(const Dataset& dataset) {
  std::set<std::string> seen;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const fs::path name = file_name(dataset, i);
    const bool leaves =
        name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
    if (!leaves && seen.insert(name.lexically_normal().string()).second) continue;
    throw ConfigError(fmt::format(
        "[eval] --out: the name of sample {}, {}, {}; let the dataset's "
        "sample_name return others",
        i, name.string(), leaves ? "leads out of the folder" : "is another sample's, too"));
  }
}

void write_sample(const fs::path& file, const at::Tensor& rgb) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error) {
    throw RunError(fmt::format("[eval] --out: {} cannot be made: {}", file.parent_path().string(),
                               error.message()));
  }
  const std::span<const uint8_t> bytes(rgb.const_data_ptr<uint8_t>(),
                                       static_cast<size_t>(rgb.numel()));
  write_file(file, png_of(bytes, rgb.size(1), rgb.size(0)));
}

}  // namespace

SeePrediction outputs_writer(const fs::path& folder, const Dataset& dataset, const Task& task,
                             const Ranks& ranks) {
  if (folder.empty()) return {};
  if (!matches_any(task.metrics, picture_metrics().front())) {
    throw ConfigError(
        "[eval] --out writes the outputs as pictures, and those of this task are no pictures; "
        "drop --out");
  }
  check_names(dataset);
  make_new_folder(folder, ranks);
  return [folder, &dataset](const Batch& batch, const Prediction& prediction) {
    check_are_pictures(prediction.outputs, batch.size(), "drop --out");
    const at::Tensor rows = host_copies({rgb_of(prediction.outputs)}).front();
    const auto* id = batch.ids.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < rows.size(0); ++i) {
      write_sample(folder / file_name(dataset, id[i]), rows[i]);
    }
  };
}

}  // namespace tanren
