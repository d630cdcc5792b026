#include "tanren/data/image/reader.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/text.h"
#include "tanren/data/image/files.h"

#include <algorithm>
#include <utility>

namespace tanren {

OpenedImage Workbench::open(const std::string& root, const std::string& name, int64_t max_pixels) {
  name_ = name;
  const auto bytes = file_.read(root + "/" + name);
  const ImageHeader header = *image_header(bytes, true);
  check_pixels(header, max_pixels);
  return {bytes, header};
}

void Workbench::place(const OpenedImage& image, std::span<const Placement> placements,
                      int64_t divisor) {
  DecodeRequest request{.header = image.header, .divisor = divisor};
  PixelBox& need = request.need;
  const auto used = std::span(resizers_).first(placements.size());
  for (size_t i = 0; i < placements.size(); ++i) {
    const auto& [view, channels, filter] = placements[i];
    Resizer& resizer = used[i];
    resizer.start(view.x.divided(divisor), view.y.divided(divisor), channels, view.target, filter);
    const PixelBox own{resizer.first_x(), resizer.first_y(), resizer.end_x(), resizer.end_y()};
    need = i == 0 ? own
                  : PixelBox{std::min(need.x0, own.x0), std::min(need.y0, own.y0),
                             std::max(need.x1, own.x1), std::max(need.y1, own.y1)};
  }
  decode_image(image.bytes, request, rows_, [&](int64_t y, const uint8_t* pixels) {
    for (Resizer& resizer : used) {
      if (y < resizer.first_y() || y >= resizer.end_y()) continue;
      resizer.row(y, pixels + 3 * (resizer.first_x() - need.x0));
    }
  });
}

void Workbench::trim() {
  constexpr size_t kWorthKeeping = 32 << 20;  // an interlaced PNG may have taken far more
  if (rows_.capacity() > kWorthKeeping) rows_ = {};
}

ImageReader::ImageReader(const SourceOptions& options, std::string what, int64_t size)
    : path_(options.path), what_(std::move(what)), skips_(options.broken == "skip"), size_(size) {}

std::vector<ImageReader::Place> ImageReader::read(const std::vector<int64_t>& indices,
                                                  bool training, const Decode& decode) const {
  std::vector<Place> filled;
  filled.reserve(indices.size());
  auto bench = borrow();
  for (const auto index : indices) {
    Place place{index, index, static_cast<int64_t>(filled.size())};
    if (read_one(place, training, decode, *bench)) filled.push_back(place);
  }
  give_back(std::move(bench));
  return filled;
}

// Returns false if the sample is to be left out.
bool ImageReader::read_one(Place& place, bool training, const Decode& decode,
                           Workbench& bench) const {
  if (place.index < 0 || place.index >= size_) {
    throw DataError(fmt::format("[{}] there is no sample {}; there are {}, counted from 0", what_,
                                to_text(place.index), to_text(size_)));
  }
  const int64_t candidates = training ? size_ : 1;
  for (int64_t i = 0; i < candidates; ++i) {
    place.from = (place.index + i) % size_;
    try {
      decode(place, bench);
      return true;
    } catch (const BrokenImage& broken) {
      note(place.from, bench.name(), broken.what());
    }
  }
  if (!training) return false;
  throw DataError(fmt::format("[{}] none of the {} files in {} can be decoded; check that folder",
                              what_, to_text(size_), path_));
}

// Handles a broken file: throws DataError or, with broken = "skip", logs a line for each of the
// first few.
void ImageReader::note(int64_t sample, const std::string& name, const std::string& reason) const {
  const std::string line = fmt::format("[{}] {}/{} {}", what_, path_, name, reason);
  if (!skips_) {
    throw DataError(line + "; set " + what_ +
                    ".broken = \"skip\", or fix or remove it (for a run that has begun these "
                    "are other data)");
  }
  constexpr size_t kLogged = 5;
  size_t seen = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!damaged_.emplace(sample, name).second) return;
    seen = damaged_.size();
  }
  if (seen <= kLogged) log(line + "; skipped");
}

std::string ImageReader::remarks() const {
  const std::lock_guard lock(mutex_);
  if (damaged_.empty()) return "";
  std::vector<std::string> names;
  for (const auto& [sample, name] : damaged_) names.push_back(name);
  return fmt::format("[{}] {} of {} files could not be decoded: {}", what_, names.size(),
                     to_text(size_), first_few(names));
}

std::unique_ptr<Workbench> ImageReader::borrow() const {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Workbench>();
  auto bench = std::move(free_.back());
  free_.pop_back();
  return bench;
}

void ImageReader::give_back(std::unique_ptr<Workbench> bench) const {
  bench->trim();
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(bench));
}

}  // namespace tanren
