// images: a folder of class folders with JPEG and PNG files, decoded when they are needed.
//
// If a file turns out to be damaged only while it is decoded, the run ends. With broken = "skip"
// instead: in training, the next readable file takes its place, with the random draws of the
// damaged one (files are sorted, so it mostly has the same class); in evaluation, the file is left
// out and not counted. Both depend on the files alone, never on what was read before, so order and
// counts stay the same.
#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/data/dataset.h"
#include "tanren/data/image/decode.h"
#include "tanren/data/image/folder.h"
#include "tanren/data/image/transform.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include <ATen/ATen.h>

namespace tanren {

namespace {

// Buffers that a thread needs to read images. They are lent out and reused, so that nothing is
// allocated for each image.
struct Workbench {
  FileBuffer file;
  std::vector<uint8_t> rows;
  Resizer resizer;
};

class ImagesDataset : public Dataset {
 public:
  ImagesDataset(SourceOptions options, std::string what, ImageFolder folder)
      : options_(std::move(options)), what_(std::move(what)), folder_(std::move(folder)) {
    const auto [rows, columns] = image_size(options_);
    pixels_ = rows * columns;
    info_.input_shape = {options_.channels, rows, columns};
    info_.outputs = static_cast<int64_t>(folder_.classes.size());
    info_.class_names = folder_.classes;
  }

  int64_t size() const override { return static_cast<int64_t>(folder_.files.size()); }
  DataInfo info() const override { return info_; }

  Collated collate(const std::vector<int64_t>& indices) const override {
    return make(indices, nullptr);
  }
  Collated collate_training(const std::vector<int64_t>& indices, const Draw& draw) const override {
    return make(indices, &draw);
  }

  std::vector<DataPart> parts() const override {
    std::vector<DataFile> files;
    Hash64 labels;
    for (const auto& file : folder_.files) {
      files.push_back({file.name, file.bytes});
      labels.add(file.label);
    }
    std::vector<DataPart> parts = parts_of(files);
    parts.push_back({"labels", labels.value()});
    parts.push_back(part_of("class names", folder_.classes));
    return parts;
  }

  std::vector<int64_t> class_counts() const override {
    std::vector<int64_t> counts(folder_.classes.size());
    for (const auto& file : folder_.files) {
      const auto label = static_cast<size_t>(file.label);
      if (label < counts.size()) ++counts[label];
    }
    return counts;
  }

  std::string remarks() const override {
    const std::lock_guard lock(mutex_);
    if (damaged_.empty()) return "";
    std::vector<std::string> names;
    for (const auto index : damaged_) names.push_back(name_of(index));
    return fmt::format("[{}] {} of {} files could not be decoded: {}", what_, names.size(),
                       to_text(size()), first_few(names));
  }

 private:
  const std::string& name_of(int64_t index) const {
    return folder_.files[static_cast<size_t>(index)].name;
  }

  Collated make(const std::vector<int64_t>& indices, const Draw* draw) const {
    const auto count = static_cast<int64_t>(indices.size());
    std::vector<int64_t> sizes = info_.input_shape;
    sizes.insert(sizes.begin(), count);
    at::Tensor inputs = at::empty(sizes, at::kFloat);
    at::Tensor labels = at::empty({count}, at::kLong), ids = at::empty({count}, at::kLong);
    auto* planes = inputs.mutable_data_ptr<float>();
    auto* label = labels.mutable_data_ptr<int64_t>();
    auto* id = ids.mutable_data_ptr<int64_t>();

    auto bench = borrow();
    int64_t kept = 0;
    for (const auto index : indices) {
      const auto used = read(index, draw, *bench, planes + kept * options_.channels * pixels_);
      if (used < 0) continue;
      label[kept] = folder_.files[static_cast<size_t>(used)].label;
      id[kept++] = index;
    }
    give_back(std::move(bench));

    Collated collated;
    collated.batch.fields.set("inputs", inputs.narrow(0, 0, kept));
    collated.batch.fields.set("labels", labels.narrow(0, 0, kept));
    collated.batch.ids = ids.narrow(0, 0, kept);
    collated.counts["samples"] = static_cast<double>(kept);
    return collated;
  }

  // Fills the planes with a sample; returns the file that was used, -1 if the sample is to be left
  // out.
  int64_t read(int64_t index, const Draw* draw, Workbench& bench, float* planes) const {
    if (index < 0 || index >= size()) {
      throw DataError(fmt::format("[{}] there is no sample {}; there are {}, counted from 0", what_,
                                  to_text(index), to_text(size())));
    }
    const int64_t candidates = draw == nullptr ? 1 : size();
    for (int64_t i = 0; i < candidates; ++i) {
      const int64_t candidate = (index + i) % size();
      try {
        decode(candidate, index, draw, bench, planes);
        return candidate;
      } catch (const BrokenImage& broken) {
        note(candidate, broken.what());
      }
    }
    if (draw == nullptr) return -1;
    throw DataError(fmt::format("[{}] none of the {} files in {} can be decoded; check that folder",
                                what_, to_text(size()), options_.path));
  }

  void decode(int64_t file, int64_t sample, const Draw* draw, Workbench& bench,
              float* planes) const {
    const auto bytes = bench.file.read(options_.path + "/" + name_of(file));
    const ImageHeader header = *image_header(bytes, true);
    check_pixels(header, options_.max_pixels);
    const int64_t width = header.shown_width(), height = header.shown_height();
    DecodeRequest request{.header = header};
    if (draw == nullptr) {
      const auto view = stored_view(evaluation_view(options_, width, height), header, planes);
      bench.resizer.start(view.x, view.y, options_.channels, view.target);
      decode_box(bytes, request, bench);
    } else {
      const SampleRandom random(draw->seed, draw->epoch, sample);
      const auto view = stored_view(training_view(options_, width, height, random), header, planes);
      request.divisor = training_divisor(view, header);
      bench.resizer.start(view.x.divided(request.divisor), view.y.divided(request.divisor),
                          options_.channels, view.target);
      decode_box(bytes, request, bench);
      jitter(options_, random, planes, pixels_);
    }
    normalise(options_, planes, pixels_);
  }

  static void decode_box(std::string_view bytes, DecodeRequest& request, Workbench& bench) {
    Resizer& resizer = bench.resizer;
    request.need = {resizer.first_x(), resizer.first_y(), resizer.end_x(), resizer.end_y()};
    decode_image(bytes, request, bench.rows,
                 [&](int64_t y, const uint8_t* pixels) { resizer.row(y, pixels); });
  }

  // Handles a broken file: DataError, or with "skip" a line in the log for the first few.
  void note(int64_t file, const std::string& reason) const {
    const std::string line =
        fmt::format("[{}] {}/{} {}", what_, options_.path, name_of(file), reason);
    if (options_.broken != "skip") {
      throw DataError(line + "; set " + what_ +
                      ".broken = \"skip\", or fix or remove it (for a run that has begun these "
                      "are other data)");
    }
    constexpr size_t kLogged = 5;
    size_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!damaged_.insert(file).second) return;
      seen = damaged_.size();
    }
    if (seen <= kLogged) log(line + "; skipped");
  }

  std::unique_ptr<Workbench> borrow() const {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workbench>();
    auto bench = std::move(free_.back());
    free_.pop_back();
    return bench;
  }
  void give_back(std::unique_ptr<Workbench> bench) const {
    constexpr size_t kWorthKeeping = 32 << 20;  // an interlaced PNG may have taken far more
    if (bench->rows.capacity() > kWorthKeeping) bench->rows = {};
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(bench));
  }

  SourceOptions options_;
  std::string what_;
  ImageFolder folder_;
  DataInfo info_;
  int64_t pixels_ = 0;
  mutable std::mutex mutex_;
  mutable std::set<int64_t> damaged_;                     // found while decoding
  mutable std::vector<std::unique_ptr<Workbench>> free_;  // as many as threads ever read at once
};

}  // namespace

std::unique_ptr<Dataset> open_images(const SourceOptions& options, const std::string& what,
                                     const DataInfo* train) {
  return std::make_unique<ImagesDataset>(options, what, open_image_folder(options, what, train));
}

std::unique_ptr<Dataset> open_image_files(const SourceOptions& options, const std::string& what,
                                          const std::vector<std::filesystem::path>& files) {
  SourceOptions from_root = options;
  from_root.path.clear();
  ImageFolder folder;
  for (const auto& file : files) {
    if (!std::filesystem::is_regular_file(file)) {
      throw DataError("[" + what + "] there is no file " + file.string() + "; name one");
    }
    const auto absolute = std::filesystem::absolute(file);
    folder.files.push_back({absolute.relative_path().string()});
  }
  return std::make_unique<ImagesDataset>(from_root, what, std::move(folder));
}

}  // namespace tanren
