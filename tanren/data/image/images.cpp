// images: a folder of class folders with JPEG and PNG files, decoded when they are needed. reader.h
// describes what happens with damaged files.
#include "tanren/base/error.h"
#include "tanren/base/hash.h"
#include "tanren/data/dataset.h"
#include "tanren/data/image/folder.h"
#include "tanren/data/image/reader.h"
#include "tanren/data/split.h"

#include <filesystem>

#include <ATen/ATen.h>

namespace tanren {

namespace {

class ImagesDataset : public Dataset {
 public:
  // `in_source`: the number of each file in the source; if empty, files are numbered from 0.
  ImagesDataset(SourceOptions options, std::string what, ImageFolder folder,
                std::vector<int64_t> in_source = {})
      : options_(std::move(options)),
        what_(std::move(what)),
        folder_(std::move(folder)),
        in_source_(std::move(in_source)),
        reader_(options_, what_, static_cast<int64_t>(folder_.files.size())) {
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

  SplitKeys split_keys() const override {
    SplitKeys keys;
    for (const auto& file : folder_.files) {
      keys.hashes.push_back(split_hash(file.name));
      keys.classes.push_back(file.label);
    }
    return keys;
  }

  std::string sample_name(int64_t index) const override {
    return folder_.files.at(static_cast<size_t>(index)).name;
  }
  int64_t source_row(int64_t index) const override {
    return in_source_.empty() ? index : in_source_.at(static_cast<size_t>(index));
  }

  // Returns a complete dataset, so that a damaged file is replaced by another file of the subset.
  std::unique_ptr<Dataset> subset(const std::vector<int64_t>& rows) const override {
    ImageFolder folder{folder_.classes, {}};
    std::vector<int64_t> in_source;
    for (const int64_t row : rows) {
      folder.files.push_back(folder_.files.at(static_cast<size_t>(row)));
      in_source.push_back(source_row(row));
    }
    return std::make_unique<ImagesDataset>(options_, what_, std::move(folder),
                                           std::move(in_source));
  }

  std::string remarks() const override { return reader_.remarks(); }

 private:
  Collated make(const std::vector<int64_t>& indices, const Draw* draw) const {
    const auto count = static_cast<int64_t>(indices.size());
    std::vector<int64_t> sizes = info_.input_shape;
    sizes.insert(sizes.begin(), count);
    at::Tensor inputs = at::empty(sizes, at::kFloat);
    at::Tensor labels = at::empty({count}, at::kLong), ids = at::empty({count}, at::kLong);
    auto* planes = inputs.mutable_data_ptr<float>();
    auto* label = labels.mutable_data_ptr<int64_t>();
    auto* id = ids.mutable_data_ptr<int64_t>();

    const auto filled =
        reader_.read(indices, draw != nullptr, [&](const ImageReader::Place& place, auto& bench) {
          decode(place, draw, bench, planes + place.row * options_.channels * pixels_);
        });
    for (const auto& place : filled) {
      *label++ = folder_.files[static_cast<size_t>(place.from)].label;
      *id++ = place.index;
    }
    const auto kept = static_cast<int64_t>(filled.size());

    Collated collated;
    collated.batch.fields.set("inputs", inputs.narrow(0, 0, kept));
    collated.batch.fields.set("labels", labels.narrow(0, 0, kept));
    collated.batch.ids = ids.narrow(0, 0, kept);
    collated.counts["samples"] = static_cast<double>(kept);
    return collated;
  }

  void decode(const ImageReader::Place& place, const Draw* draw, Workbench& bench,
              float* planes) const {
    const auto& name = folder_.files[static_cast<size_t>(place.from)].name;
    const OpenedImage image = bench.open(options_.path, name, options_.max_pixels);
    const ImageHeader& header = image.header;
    const int64_t width = header.shown_width(), height = header.shown_height();
    if (draw == nullptr) {
      const View view = evaluation_view(options_, width, height);
      const Placement whole{stored_view(view, header, planes), options_.channels};
      bench.place(image, {&whole, 1}, 1);
    } else {
      const SampleRandom random(draw->seed, draw->epoch, place.index);
      const View view = training_view(options_, width, height, random);
      const Placement whole{stored_view(view, header, planes), options_.channels};
      bench.place(image, {&whole, 1}, training_divisor(whole.view, header));
      jitter(options_, random, planes, pixels_);
    }
    normalise(options_, planes, pixels_);
  }

  SourceOptions options_;
  std::string what_;
  ImageFolder folder_;
  std::vector<int64_t> in_source_;
  ImageReader reader_;
  DataInfo info_;
  int64_t pixels_ = 0;
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
