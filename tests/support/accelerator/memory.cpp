#include "tests/support/accelerator/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace tanren::sim {

namespace {
constexpr size_t kRound = 512;
constexpr int kFresh = 0xFF;

char* map(int file, size_t bytes, int access) {
  void* const mapped = ::mmap(nullptr, bytes, access, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("cannot map a simulated device's memory");
  return static_cast<char*>(mapped);
}
}  // namespace

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes), limit_(bytes) {
  const int file = ::memfd_create("tanren-sim", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    throw std::runtime_error("cannot make a simulated device's memory");
  }
  outside_ = map(file, bytes, PROT_NONE);
  inside_ = map(file, bytes, PROT_READ | PROT_WRITE);
  ::close(file);
  free_[0] = bytes;
}

DeviceMemory::~DeviceMemory() {
  ::munmap(outside_, bytes_);
  ::munmap(inside_, bytes_);
}

bool DeviceMemory::holds(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  return at >= outside_ && at < outside_ + bytes_;
}

size_t DeviceMemory::offset_of(const void* address) const {
  return static_cast<size_t>(static_cast<const char*>(address) - outside_);
}

std::optional<size_t> DeviceMemory::room_for(size_t size) {
  if (reserved_ + size > limit_) return std::nullopt;
  for (auto room = free_.begin(); room != free_.end(); ++room) {
    const auto [begin, length] = *room;
    if (length < size) continue;
    free_.erase(room);
    if (length > size) free_[begin + size] = length - size;
    reserved_ += size;
    return begin;
  }
  return std::nullopt;
}

std::optional<DeviceMemory::Taken> DeviceMemory::take(size_t bytes, int stream) {
  Taken taken{.size = (bytes + kRound - 1) / kRound * kRound};
  auto& cache = cached_[stream];
  if (const auto found = cache.find(taken.size); found != cache.end()) {
    taken.begin = found->second;
    cache.erase(found);
  } else {
    const auto room = room_for(taken.size);
    if (!room) return std::nullopt;
    taken.begin = *room;
    taken.fresh = true;
    std::memset(inside(taken.begin), kFresh, taken.size);
  }
  blocks_[taken.begin] = {taken.begin, taken.size, stream, {}};
  live_bytes_ += taken.size;
  return taken;
}

Block DeviceMemory::free(const void* address) {
  Block block = std::move(blocks_.extract(offset_of(address)).mapped());
  std::memset(inside(block.begin), kFresh, block.size);
  cached_[block.stream].emplace(block.size, block.begin);
  live_bytes_ -= block.size;
  return block;
}

Block* DeviceMemory::block_at(size_t offset) {
  auto next = blocks_.upper_bound(offset);
  if (next == blocks_.begin()) return nullptr;
  Block& block = std::prev(next)->second;
  return offset < block.begin + block.size ? &block : nullptr;
}

void DeviceMemory::release_cached() {
  for (const auto& [stream, blocks] : cached_) {
    for (const auto& [size, begin] : blocks) {
      reserved_ -= size;
      const auto room = free_.emplace(begin, size).first;
      const auto next = std::next(room);
      if (next != free_.end() && begin + size == next->first) {
        room->second += next->second;
        free_.erase(next);
      }
      if (room == free_.begin()) continue;
      const auto before = std::prev(room);
      if (before->first + before->second == begin) {
        before->second += room->second;
        free_.erase(room);
      }
    }
  }
  cached_.clear();
}

}  // namespace tanren::sim
