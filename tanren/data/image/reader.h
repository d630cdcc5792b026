// Shared by the datasets of pictures: reads and decodes files when their samples are needed, and
// handles files that turn out to be damaged only then. Without broken = "skip" the run ends. With
// "skip", training replaces a damaged sample by the next readable one and keeps the damaged one's
// random draws. Files are sorted, so the replacement mostly has the same class. Evaluation leaves
// the sample out and does not count it. Both rules depend only on the files, never on what was read
// before, so order and counts stay the same.
#pragma once

#include "tanren/config/run_config.h"
#include "tanren/data/image/decode.h"
#include "tanren/data/image/resize.h"
#include "tanren/data/image/transform.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// A picture file in memory.
struct OpenedImage {
  std::string_view bytes;  // valid until the workbench opens another
  ImageHeader header;
};

// A part of a picture and where it goes. `channels`: the number of colour planes of the view.
struct Placement {
  StoredView view;
  int64_t channels = 3;
  Filter filter = Filter::bilinear;
};

// Buffers that a thread needs to read pictures. They are lent out and reused, so that nothing is
// allocated for each picture.
class Workbench {
 public:
  static constexpr size_t kMostPlacements = 2;

  // Reads root/name. BrokenImage for a file that cannot be read, and as image_header and
  // check_pixels.
  OpenedImage open(const std::string& root, const std::string& name, int64_t max_pixels);
  // Decodes the picture once and fills the planes of each placement, at most kMostPlacements of
  // them. `divisor` as in DecodeRequest. BrokenImage for damaged data.
  void place(const OpenedImage& image, std::span<const Placement> placements, int64_t divisor);

  // The name of the file that was opened last.
  const std::string& name() const { return name_; }
  // Frees memory beyond what pictures of usual sizes need.
  void trim();

 private:
  FileBuffer file_;
  std::string name_;
  std::vector<uint8_t> rows_;
  std::array<Resizer, kMostPlacements> resizers_;
};

class ImageReader {
 public:
  // `what` names the section in error texts ("data.train"); `size`: how many samples there are.
  ImageReader(const SourceOptions& options, std::string what, int64_t size);

  // Fills row `row` of a batch with the files of sample `from`, and with the random draws of sample
  // `index`.
  struct Place {
    int64_t from = 0, index = 0, row = 0;
  };
  using Decode = std::function<void(const Place& place, Workbench& bench)>;
  // Calls `decode` for each index, in order; rows follow each other. Returns the places that were
  // filled: all of them in training. Thread-safe. DataError for an index outside [0, size), and for
  // a damaged file as described above.
  std::vector<Place> read(const std::vector<int64_t>& indices, bool training,
                          const Decode& decode) const;

  // The files that could not be decoded so far, as Dataset::remarks.
  std::string remarks() const;

 private:
  bool read_one(Place& place, bool training, const Decode& decode, Workbench& bench) const;
  void note(int64_t sample, const std::string& name, const std::string& reason) const;
  std::unique_ptr<Workbench> borrow() const;
  void give_back(std::unique_ptr<Workbench> bench) const;

  std::string path_, what_;
  bool skips_ = false;
  int64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::string> damaged_;  // sample → its file, found while decoding
  mutable std::vector<std::unique_ptr<Workbench>> free_;  // as many as threads ever read at once
};

}  // namespace tanren
