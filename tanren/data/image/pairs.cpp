// pairs: each sample is a picture whose target is another picture. The files are in two folders,
// inputs/ and targets/, and paired by name, or in one folder, each file with both pictures side by
// side. One view is drawn for each pair and applies to both pictures. reader.h describes what
// happens with damaged files.
#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/data/dataset.h"
#include "tanren/data/image/pair_files.h"
#include "tanren/data/image/reader.h"
#include "tanren/data/split.h"

#include <ATen/ATen.h>

#include <array>
#include <utility>

namespace tanren {

namespace {

class PairsDataset : public Dataset {
 public:
  // `in_source`: the number of each pair in the source; if empty, pairs are numbered from 0.
  PairsDataset(SourceOptions options, std::string what, std::vector<PicturePair> pairs,
               std::vector<int64_t> in_source = {})
      : options_(std::move(options)),
        what_(std::move(what)),
        pairs_(std::move(pairs)),
        in_source_(std::move(in_source)),
        reader_(options_, what_, static_cast<int64_t>(pairs_.size())),
        filter_(filter_named(options_.filter)),
        target_filter_(options_.target_filter.empty() ? filter_
                                                      : filter_named(options_.target_filter)) {
    const auto [rows, columns] = image_size(options_);
    const int64_t channels = options_.channels;
    const int64_t target_channels =
        options_.target_channels > 0 ? options_.target_channels : channels;
    info_.input_shape = {channels, rows, columns};
    info_.target_shape = {target_channels, rows, columns};
    info_.outputs = target_channels * rows * columns;
    info_.class_labels = false;
    input_size_ = channels * rows * columns;
    target_size_ = info_.outputs;
  }

  int64_t size() const override { return static_cast<int64_t>(pairs_.size()); }
  DataInfo info() const override { return info_; }

  Collated collate(const std::vector<int64_t>& indices) const override {
    return make(indices, nullptr);
  }
  Collated collate_training(const std::vector<int64_t>& indices, const Draw& draw) const override {
    return make(indices, &draw);
  }

  std::vector<DataPart> parts() const override {
    std::vector<DataFile> files;
    for (const auto& pair : pairs_) {
      files.push_back(pair.input);
      if (!options_.side_by_side) files.push_back(pair.target);
    }
    return parts_of(files);
  }

  std::string sample_name(int64_t index) const override {
    return pairs_.at(static_cast<size_t>(index)).name;
  }
  int64_t source_row(int64_t index) const override {
    return in_source_.empty() ? index : in_source_.at(static_cast<size_t>(index));
  }

  SplitKeys split_keys() const override {
    SplitKeys keys;
    for (const auto& pair : pairs_) keys.hashes.push_back(split_hash(pair.name));
    return keys;
  }

  // Returns a complete dataset, so that a damaged pair is replaced by another pair of the subset.
  std::unique_ptr<Dataset> subset(const std::vector<int64_t>& rows) const override {
    std::vector<PicturePair> pairs;
    std::vector<int64_t> in_source;
    for (const int64_t row : rows) {
      pairs.push_back(pairs_.at(static_cast<size_t>(row)));
      in_source.push_back(source_row(row));
    }
    return std::make_unique<PairsDataset>(options_, what_, std::move(pairs), std::move(in_source));
  }

  std::string remarks() const override { return reader_.remarks(); }

 private:
  Collated make(const std::vector<int64_t>& indices, const Draw* draw) const {
    const auto count = static_cast<int64_t>(indices.size());
    const auto batch_of = [&](const std::vector<int64_t>& shape) {
      return at::empty({count, shape[0], shape[1], shape[2]}, at::kFloat);
    };
    const at::Tensor inputs = batch_of(info_.input_shape), labels = batch_of(info_.target_shape);
    const at::Tensor ids = at::empty({count}, at::kLong);
    auto* input = inputs.mutable_data_ptr<float>();
    auto* target = labels.mutable_data_ptr<float>();
    auto* id = ids.mutable_data_ptr<int64_t>();

    const auto filled =
        reader_.read(indices, draw != nullptr, [&](const ImageReader::Place& place, auto& bench) {
          decode(place, draw, bench, input + place.row * input_size_,
                 target + place.row * target_size_);
        });
    for (const auto& place : filled) *id++ = place.index;
    const auto kept = static_cast<int64_t>(filled.size());

    Collated collated;
    collated.batch.fields.set("inputs", inputs.narrow(0, 0, kept));
    collated.batch.fields.set("labels", labels.narrow(0, 0, kept));
    collated.batch.ids = ids.narrow(0, 0, kept);
    collated.counts["samples"] = static_cast<double>(kept);
    return collated;
  }

  void decode(const ImageReader::Place& place, const Draw* draw, Workbench& bench, float* input,
              float* target) const {
    const PicturePair& pair = pairs_[static_cast<size_t>(place.from)];
    if (options_.side_by_side) {
      decode_halves(pair, place.index, draw, bench, input, target);
    } else {
      decode_files(pair, place.index, draw, bench, input, target);
    }
    to_minus_one_to_one(input, input_size_);
    to_minus_one_to_one(target, target_size_);
  }

  // The view of a pair whose pictures are of this size.
  View view_of(int64_t sample, const Draw* draw, int64_t width, int64_t height) const {
    if (draw == nullptr) return evaluation_view(options_, width, height);
    return training_view(options_, width, height, SampleRandom(draw->seed, draw->epoch, sample));
  }

  Placement input_at(const View& view, const ImageHeader& header, float* planes) const {
    return {stored_view(view, header, planes), info_.input_shape[0], filter_};
  }
  Placement target_at(const View& view, const ImageHeader& header, float* planes) const {
    return {stored_view(view, header, planes), info_.target_shape[0], target_filter_};
  }

  void decode_files(const PicturePair& pair, int64_t sample, const Draw* draw, Workbench& bench,
                    float* input, float* target) const {
    const OpenedImage first = bench.open(options_.path, pair.input.name, options_.max_pixels);
    const ImageHeader header = first.header;
    check_pair_colours(header);
    const View view = view_of(sample, draw, header.shown_width(), header.shown_height());
    const Placement own = input_at(view, header, input);
    bench.place(first, {&own, 1}, 1);

    const OpenedImage second = bench.open(options_.path, pair.target.name, options_.max_pixels);
    check_pair_colours(second.header);
    check_same_size(header, second.header);
    const Placement other = target_at(view, second.header, target);
    bench.place(second, {&other, 1}, 1);
  }

  void decode_halves(const PicturePair& pair, int64_t sample, const Draw* draw, Workbench& bench,
                     float* input, float* target) const {
    const OpenedImage image = bench.open(options_.path, pair.input.name, options_.max_pixels);
    check_pair_colours(image.header);
    check_halves(image.header);
    const int64_t half = image.header.shown_width() / 2;
    const View left = view_of(sample, draw, half, image.header.shown_height());
    View right = left;
    right.x.origin += static_cast<double>(half);
    right.x.low += half;
    right.x.high += half;
    const std::array both = {
        input_at(options_.swap ? right : left, image.header, input),
        target_at(options_.swap ? left : right, image.header, target),
    };
    bench.place(image, both, 1);
  }

  SourceOptions options_;
  std::string what_;
  std::vector<PicturePair> pairs_;
  std::vector<int64_t> in_source_;
  ImageReader reader_;
  Filter filter_, target_filter_;
  DataInfo info_;
  int64_t input_size_ = 0, target_size_ = 0;  // floats of a sample
};

}  // namespace

std::unique_ptr<Dataset> open_pairs(const SourceOptions& options, const std::string& what,
                                    const DataInfo*) {
  return std::make_unique<PairsDataset>(options, what, list_pairs(options, what));
}

}  // namespace tanren
