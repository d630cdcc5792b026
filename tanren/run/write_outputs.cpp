#include "tanren/run/write_outputs.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/formats/png.h"
#include "tanren/train/pictures.h"

#include <ATen/ATen.h>

#include <span>

namespace tanren {

namespace {

namespace fs = std::filesystem;

void check_new_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    fs::create_directories(folder, error);
    if (!error) return;
    throw ConfigError(fmt::format("[eval] --out {} cannot be made: {}; name another folder",
                                  folder.string(), error.message()));
  }
  if (fs::is_directory(folder, error) && fs::is_empty(folder, error) && !error) return;
  throw ConfigError(fmt::format("[eval] --out {} is there and not an empty folder; name a new one",
                                folder.string()));
}

void write_sample(const fs::path& file, const at::Tensor& rgb) {
  fs::create_directories(file.parent_path());
  const std::span<const uint8_t> bytes(rgb.const_data_ptr<uint8_t>(),
                                       static_cast<size_t>(rgb.numel()));
  write_file(file, png_of(bytes, rgb.size(1), rgb.size(0)));
}

}  // namespace

SeePrediction outputs_writer(const fs::path& folder, const Dataset& dataset, const Task& task,
                             const DataParallel& ranks) {
  if (folder.empty()) return {};
  if (!matches_any(task.metrics, picture_metrics().front())) {
    throw ConfigError(
        "[eval] --out writes the outputs as pictures, and those of this task are no pictures; "
        "drop --out");
  }
  if (ranks.is_first()) check_new_folder(folder);
  return [folder, &dataset](const Batch& batch, const Prediction& prediction) {
    check_are_pictures(prediction.outputs);
    const at::Tensor rows = host_copies({rgb_of(prediction.outputs)}).front();
    const auto* id = batch.ids.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < rows.size(0); ++i) {
      const std::string name = dataset.sample_name(id[i]);
      write_sample(folder / ((name.empty() ? fmt::format("sample-{:06}", id[i]) : name) + ".png"),
                   rows[i]);
    }
  };
}

}  // namespace tanren
