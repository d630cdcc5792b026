// A strict reader of TensorBoard event files for tests, written against the format's description
// and sharing no code with the writer. It checks every length, checksum and field, and throws
// std::runtime_error for anything unknown, out of place or left over.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tanren::testing {

struct ReadImage {
  uint64_t height = 0, width = 0;
  std::string png;
};

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  bool session_start = false;
  std::vector<std::pair<std::string, float>> scalars;
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<std::pair<std::string, ReadImage>> images;
};

class EventBytes {
 public:
  explicit EventBytes(std::string bytes) : bytes_(std::move(bytes)) {}
  bool empty() const { return at_ == bytes_.size(); }

  std::string take(uint64_t count) {
    if (count > bytes_.size() - at_) throw std::runtime_error("cut off");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  uint64_t fixed(int count) {
    uint64_t number = 0;
    const std::string bytes = take(static_cast<uint64_t>(count));
    for (int i = count; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
    return number;
  }
  uint64_t varint() {
    uint64_t number = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint64_t byte = fixed(1);
      number |= (byte & 127) << shift;
      if (byte < 128) return number;
    }
    throw std::runtime_error("endless varint");
  }
  // Reads the next field; its wire type must be the one that `types` gives for its number.
  int field(const std::map<int, int>& types) {
    const uint64_t key = varint();
    const auto known = types.find(static_cast<int>(key >> 3));
    if (known == types.end()) throw std::runtime_error("unknown field " + std::to_string(key >> 3));
    if (known->second != static_cast<int>(key & 7)) throw std::runtime_error("wrong wire type");
    return known->first;
  }
  EventBytes message() { return EventBytes(take(varint())); }
  std::string text() { return take(varint()); }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

// Bit by bit, as the polynomial is defined.
inline uint32_t slow_masked_crc(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

inline float as_float(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline std::string read_tensor_text(EventBytes tensor) {
  std::string text;
  std::map<int, int> seen;
  while (!tensor.empty()) {
    const int field = tensor.field({{1, 0}, {2, 2}, {8, 2}});
    if (++seen[field] > 1) throw std::runtime_error("a tensor field twice");
    if (field == 1 && tensor.varint() != 7) throw std::runtime_error("dtype is not DT_STRING");
    if (field == 2) {
      EventBytes shape = tensor.message();
      shape.field({{2, 2}});
      EventBytes dim = shape.message();
      dim.field({{1, 0}});
      if (dim.varint() != 1 || !dim.empty() || !shape.empty()) throw std::runtime_error("shape");
    }
    if (field == 8) text = tensor.text();
  }
  if (seen.size() != 3) throw std::runtime_error("a tensor field is missing");
  return text;
}

inline ReadImage read_image(EventBytes bytes) {
  ReadImage image;
  std::map<int, int> seen;
  while (!bytes.empty()) {
    const int field = bytes.field({{1, 0}, {2, 0}, {3, 0}, {4, 2}});
    if (++seen[field] > 1) throw std::runtime_error("an image field twice");
    if (field == 1) image.height = bytes.varint();
    if (field == 2) image.width = bytes.varint();
    if (field == 3 && bytes.varint() != 3) throw std::runtime_error("the colours are not RGB");
    if (field == 4) image.png = bytes.text();
  }
  if (seen.size() != 4) throw std::runtime_error("an image field is missing");
  return image;
}

inline void read_value(EventBytes value, ReadEvent& event) {
  std::string tag, plugin;
  bool is_scalar = false, is_text = false, is_image = false;
  ReadImage image;
  float scalar = 0;
  std::string text;
  while (!value.empty()) {
    switch (value.field({{1, 2}, {2, 5}, {4, 2}, {8, 2}, {9, 2}})) {
      case 1: tag = value.text(); break;
      case 2:
        scalar = as_float(static_cast<uint32_t>(value.fixed(4)));
        is_scalar = true;
        break;
      case 4:
        image = read_image(value.message());
        is_image = true;
        break;
      case 8:
        text = read_tensor_text(value.message());
        is_text = true;
        break;
      default: {
        EventBytes metadata = value.message();
        metadata.field({{1, 2}});
        EventBytes data = metadata.message();
        data.field({{1, 2}});
        plugin = data.text();
        if (!data.empty() || !metadata.empty()) throw std::runtime_error("metadata");
      }
    }
  }
  if (tag.empty() || int{is_scalar} + int{is_text} + int{is_image} != 1)
    throw std::runtime_error("a value without sense");
  if (is_text && plugin != "text") throw std::runtime_error("text without its plugin's name");
  if (is_scalar) event.scalars.emplace_back(tag, scalar);
  if (is_text) event.texts.emplace_back(tag, text);
  if (is_image) event.images.emplace_back(tag, image);
}

inline ReadEvent read_event(EventBytes bytes) {
  ReadEvent event;
  int contents = 0;
  while (!bytes.empty()) {
    switch (bytes.field({{1, 1}, {2, 0}, {3, 2}, {5, 2}, {7, 2}})) {
      case 1: {
        const uint64_t bits = bytes.fixed(8);
        std::memcpy(&event.wall_time, &bits, 8);
        break;
      }
      case 2: event.step = static_cast<int64_t>(bytes.varint()); break;
      case 3:
        event.file_version = bytes.text();
        ++contents;
        break;
      case 5: {
        EventBytes summary = bytes.message();
        while (!summary.empty()) {
          summary.field({{1, 2}});
          read_value(summary.message(), event);
        }
        ++contents;
        break;
      }
      default: {
        EventBytes session = bytes.message();
        session.field({{1, 0}});
        event.session_start = session.varint() == 1;
        if (!session.empty()) throw std::runtime_error("session log");
        ++contents;
      }
    }
  }
  if (contents != 1) throw std::runtime_error("an event says one thing");
  return event;
}

// All events of one file: first its version, then the session's start, then steps and times that
// never decrease. A tag occurs at most once a step.
inline std::vector<ReadEvent> read_events(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream all;
  all << in.rdbuf();
  EventBytes bytes(all.str());
  std::vector<ReadEvent> events;
  std::map<std::string, int64_t> last_step;
  while (!bytes.empty()) {
    const std::string length = bytes.take(8);
    if (bytes.fixed(4) != slow_masked_crc(length)) throw std::runtime_error("crc of a length");
    const std::string message = bytes.take(EventBytes(length).fixed(8));
    if (bytes.fixed(4) != slow_masked_crc(message)) throw std::runtime_error("crc of a message");
    const ReadEvent event = read_event(EventBytes(message));
    const size_t index = events.size();
    if ((index == 0) != (event.file_version == "brain.Event:2"))
      throw std::runtime_error("version");
    if ((index == 1) != event.session_start) throw std::runtime_error("session start");
    if (index > 2 && event.step < events.back().step) throw std::runtime_error("steps fall");
    if (index > 0 && event.wall_time < events.back().wall_time) throw std::runtime_error("time");
    for (const auto& [tag, value] : event.scalars) {
      const auto [seen, is_new] = last_step.emplace(tag, event.step);
      if (!is_new && seen->second >= event.step) throw std::runtime_error(tag + " twice a step");
      seen->second = event.step;
    }
    events.push_back(event);
  }
  return events;
}

// tag → (step, value) over the files of a folder in TensorBoard's order; a tag at most once a step.
inline std::map<std::string, std::vector<std::pair<int64_t, float>>> read_curves(
    const std::filesystem::path& folder) {
  std::map<std::string, std::vector<std::pair<int64_t, float>>> curves;
  std::map<std::filesystem::path, std::vector<ReadEvent>> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path()] = read_events(entry.path());
  }
  for (const auto& [path, events] : files) {
    for (const auto& event : events) {
      for (const auto& [tag, value] : event.scalars) {
        auto& curve = curves[tag];
        if (!curve.empty() && curve.back().first >= event.step) {
          throw std::runtime_error(tag + " has step " + std::to_string(event.step) + " twice");
        }
        curve.emplace_back(event.step, value);
      }
    }
  }
  return curves;
}

}  // namespace tanren::testing
