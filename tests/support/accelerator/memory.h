// Memory of one simulated device, mapped twice: tensors carry addresses of a mapping that nobody
// may touch, and kernels use the other one. A freed block goes to the cache of its stream. Fresh
// and freed bytes are 0xFF. Torch-free, not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>

namespace tanren::sim {

struct Block {
  size_t begin = 0;  // offset in the device's memory
  size_t size = 0;
  int stream = 0;          // owner: the stream that was current when it was allocated
  std::set<int> recorded;  // other streams that use it (record_stream)
};

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  bool holds(const void* address) const;
  size_t offset_of(const void* address) const;
  void* address_of(size_t offset) const { return outside_ + offset; }  // for tensors
  void* inside(size_t offset) const { return inside_ + offset; }       // for kernels

  // A block of at least `bytes`, from the stream's cache or fresh; nothing if there is no room.
  struct Taken {
    size_t begin = 0;
    size_t size = 0;
    bool fresh = false;
  };
  std::optional<Taken> take(size_t bytes, int stream);
  // Moves a live block to its stream's cache.
  Block free(const void* address);
  // The live block that holds `offset`; null: none.
  Block* block_at(size_t offset);
  // Turns cached blocks into free memory, which any stream can take.
  void release_cached();

  void set_limit(size_t bytes) { limit_ = bytes; }
  size_t limit() const { return limit_; }
  size_t live() const { return live_bytes_; }
  size_t reserved() const { return reserved_; }  // live and cached

 private:
  std::optional<size_t> room_for(size_t size);

  size_t bytes_;
  size_t limit_;
  char* outside_ = nullptr;
  char* inside_ = nullptr;
  size_t live_bytes_ = 0;
  size_t reserved_ = 0;
  std::map<size_t, size_t> free_;                        // begin → size
  std::map<int, std::multimap<size_t, size_t>> cached_;  // stream → size → begin
  std::map<size_t, Block> blocks_;                       // live ones, by begin
};

}  // namespace tanren::sim
