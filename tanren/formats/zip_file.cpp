#include "tanren/formats/zip_file.h"

#include "tanren/base/error.h"
#include "tanren/base/one_line.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace tanren {

namespace {

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint32_t kCentral = 0x02014b50, kLocal = 0x04034b50;
constexpr size_t kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;
constexpr size_t kCentralSize = 46, kLocalSize = 30, kMaxComment = 65535;

class Archive {
 public:
  Archive(std::string_view file, const std::string& where) : file_(file), where_(where) {}

  std::map<std::string, std::string_view> entries() {
    find_directory();
    std::map<std::string, std::string_view> found;
    uint64_t at = directory_;
    for (uint64_t i = 0; i < count_; ++i) {
      const std::string_view header = bytes(at, kCentralSize, "the directory");
      if (number<uint32_t>(header, 0) != kCentral) fail("its directory is damaged");
      const uint64_t name_size = number<uint16_t>(header, 28);
      const uint64_t extra_size = number<uint16_t>(header, 30);
      const uint64_t comment_size = number<uint16_t>(header, 32);
      const std::string name(bytes(at + kCentralSize, name_size, "a name"));
      const auto extra = bytes(at + kCentralSize + name_size, extra_size, "an extra field");
      if ((number<uint16_t>(header, 8) & 1) != 0) fail("entry " + name + " is encrypted");
      at += kCentralSize + name_size + extra_size + comment_size;
      if (number<uint16_t>(header, 10) != 0) continue;  // TorchScript compresses its code
      if (!found.emplace(name, data_of(header, extra, name)).second) {
        fail("entry " + name + " comes twice");
      }
    }
    check_apart(found);
    return found;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError(where_ + ": " + one_line(what) + "; save or download it again");
  }

  template <typename T>
  static T number(std::string_view from, size_t at) {
    T value;
    std::memcpy(&value, from.data() + at, sizeof value);
    return value;
  }

  std::string_view bytes(uint64_t at, uint64_t size, const char* what) const {
    if (at > file_.size() || size > file_.size() - at) {
      std::string text = "the archive ends within ";
      fail(text += what);
    }
    return file_.substr(at, size);
  }

  // If entries could share bytes, a small file could expand to many copies of itself.
  void check_apart(const std::map<std::string, std::string_view>& entries) const {
    std::vector<std::pair<std::string_view, const std::string*>> by_place;
    for (const auto& [name, data] : entries) {
      if (!data.empty()) by_place.emplace_back(data, &name);
    }
    std::sort(by_place.begin(), by_place.end(),
              [](const auto& a, const auto& b) { return a.first.data() < b.first.data(); });
    for (size_t i = 1; i < by_place.size(); ++i) {
      const auto& before = by_place[i - 1].first;
      if (before.data() + before.size() > by_place[i].first.data()) {
        fail("entries " + *by_place[i - 1].second + " and " + *by_place[i].second + " overlap");
      }
    }
  }

  void find_directory() {
    if (file_.size() < kEndSize) fail("it is too short for a zip archive");
    const size_t lowest =
        file_.size() > kEndSize + kMaxComment ? file_.size() - kEndSize - kMaxComment : 0;
    size_t at = file_.size() - kEndSize;
    while (number<uint32_t>(file_, at) != kEnd) {
      if (at == lowest) fail("it has no zip directory (a download that broke off?)");
      --at;
    }
    const auto end = file_.substr(at, kEndSize);
    count_ = number<uint16_t>(end, 10);
    directory_ = number<uint32_t>(end, 16);
    const bool wide = count_ == 0xffff || directory_ == 0xffffffff;
    if (wide && at >= kLocatorSize && number<uint32_t>(file_, at - kLocatorSize) == kLocator64) {
      const auto place = number<uint64_t>(file_, at - kLocatorSize + 8);
      const auto end64 = bytes(place, kEnd64Size, "its zip64 directory");
      if (number<uint32_t>(end64, 0) != kEnd64) fail("its zip64 directory is damaged");
      count_ = number<uint64_t>(end64, 32);
      directory_ = number<uint64_t>(end64, 48);
    }
    if (count_ > file_.size() / kCentralSize) fail("its directory claims more entries than fit");
  }

  std::string_view data_of(std::string_view header, std::string_view extra,
                           const std::string& name) const {
    uint64_t stored = number<uint32_t>(header, 20);
    uint64_t size = number<uint32_t>(header, 24);
    uint64_t local = number<uint32_t>(header, 42);
    // Fields that do not fit 32 bits are in the zip64 extra field, in this order.
    for (size_t at = 0; at + 4 <= extra.size();) {
      const uint64_t field = number<uint16_t>(extra, at + 2);
      if (at + 4 + field > extra.size()) break;
      if (number<uint16_t>(extra, at) == 1) {
        size_t next = at + 4;
        for (uint64_t* value : {&size, &stored, &local}) {
          if (*value != 0xffffffff || next + 8 > at + 4 + field) continue;
          *value = number<uint64_t>(extra, next);
          next += 8;
        }
      }
      at += 4 + field;
    }
    if (stored != size) fail("entry " + name + " has two sizes");
    const auto start = bytes(local, kLocalSize, "an entry");
    if (number<uint32_t>(start, 0) != kLocal) fail("entry " + name + " is not where it should be");
    const uint64_t skip = kLocalSize + number<uint16_t>(start, 26) + number<uint16_t>(start, 28);
    if (local > directory_ || skip > directory_ - local || size > directory_ - local - skip) {
      fail("entry " + name + " reaches past the archive's data");
    }
    return bytes(local + skip, size, "an entry's data");
  }

  std::string_view file_;
  const std::string& where_;
  uint64_t count_ = 0;
  uint64_t directory_ = 0;
};

}  // namespace

std::map<std::string, std::string_view> zip_entries(std::string_view file,
                                                    const std::string& where) {
  return Archive(file, where).entries();
}

}  // namespace tanren
