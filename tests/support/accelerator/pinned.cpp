#include "tests/support/accelerator/simulator.h"

#include <fmt/format.h>
#include <ATen/ops/empty.h>

#include <cstdlib>
#include <cstring>
#include <map>

namespace tanren::sim {

namespace {

// All of it under state().mutex.
struct Upload {  // the host must not change the source before the copy has been made
  int stream = 0;
  uint64_t launch = 0;
  const char* source = nullptr;
  std::vector<char> bytes;  // when it was launched
};
struct Download {
  int stream = 0;
  uint64_t launch = 0;
  at::Tensor to;
  at::Tensor values;  // undefined: already written to `to`
};
struct Pinned {
  std::map<const char*, size_t> blocks;  // begin → bytes
  std::vector<Upload> uploads;
  std::vector<Download> downloads;
};
Pinned& pinned() {
  static auto* const one = new Pinned;
  return *one;
}

uint64_t last_launch(int stream) { return state().clocks[at_index(stream)][at_index(stream)]; }

void compare(const Upload& upload) {
  if (std::memcmp(upload.source, upload.bytes.data(), upload.bytes.size()) == 0) return;
  violate(fmt::format(
      "pinned memory changed while a copy on {} read it; the host had not waited for the copy",
      name_of(upload.stream)));
}

bool overlap(const char* a, size_t a_bytes, const char* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

void appear(Download& download) {
  if (!download.values.defined()) return;
  std::memcpy(download.to.mutable_data_ptr(), download.values.const_data_ptr(),
              download.values.nbytes());
  download.values.reset();
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    constexpr size_t kAlign = 64;
    char* const data =
        static_cast<char*>(std::aligned_alloc(kAlign, (bytes / kAlign + 1) * kAlign));
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "no host memory for ", bytes, " bytes");
    const std::lock_guard lock(state().mutex);
    pinned().blocks[data] = std::max<size_t>(bytes, 1);
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  // A copy may still read it: torch's allocator of pinned memory waits before it is used again.
  static void release(void* data) {
    {
      const std::lock_guard lock(state().mutex);
      const auto block = pinned().blocks.find(static_cast<char*>(data));
      std::erase_if(pinned().uploads, [&](const Upload& upload) {
        if (!overlap(block->first, block->second, upload.source, upload.bytes.size())) return false;
        compare(upload);
        return true;
      });
      pinned().blocks.erase(block);
    }
    std::free(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

}  // namespace

c10::Allocator& pinned_allocator() {
  static auto* const one = new PinnedAllocator;
  return *one;
}

bool is_pinned(const void* address) {
  const std::lock_guard lock(state().mutex);
  const auto* const at = static_cast<const char*>(address);
  const auto next = pinned().blocks.upper_bound(at);
  if (next == pinned().blocks.begin()) return false;
  const auto& [begin, bytes] = *std::prev(next);
  return at < begin + bytes;
}

void watch_upload(int stream, const at::Tensor& source) {
  const auto* const begin = static_cast<const char*>(source.const_data_ptr());
  const auto bytes = use_bytes(source);
  const std::lock_guard lock(state().mutex);
  pinned().uploads.push_back({stream, last_launch(stream), begin, {begin, begin + bytes}});
}

void deliver_later(int stream, const at::Tensor& to, const at::Tensor& values) {
  const auto* const begin = static_cast<const char*>(to.const_data_ptr());
  const std::lock_guard lock(state().mutex);
  const Clock& clock = state().clocks[at_index(stream)];
  std::erase_if(pinned().uploads, [&](const Upload& upload) {
    if (!overlap(begin, to.nbytes(), upload.source, upload.bytes.size())) return false;
    compare(upload);
    if (upload.launch > clock[at_index(upload.stream)]) {
      violate(
          fmt::format("a copy on {} writes pinned memory that a copy on {} reads, and nothing "
                      "orders them",
                      name_of(stream), name_of(upload.stream)));
    }
    return true;
  });
  std::memset(to.mutable_data_ptr(), 0xFF, to.nbytes());
  pinned().downloads.push_back({stream, last_launch(stream), to, values});
}

void deliver_to(int stream, const at::Tensor& source) {
  const auto* const begin = static_cast<const char*>(source.const_data_ptr());
  const std::lock_guard lock(state().mutex);
  const Clock& clock = state().clocks[at_index(stream)];
  for (Download& download : pinned().downloads) {
    const auto* const to = static_cast<const char*>(download.to.const_data_ptr());
    if (!overlap(begin, use_bytes(source), to, download.to.nbytes())) continue;
    if (download.launch > clock[at_index(download.stream)]) {
      violate(
          fmt::format("a copy on {} reads pinned memory that a copy on {} writes, and nothing "
                      "orders them",
                      name_of(stream), name_of(download.stream)));
      continue;
    }
    appear(download);
  }
}

std::vector<at::Tensor> deliver_arrived() {
  const auto arrived = [](const auto& copy) {
    return copy.launch <= state().host[at_index(copy.stream)];
  };
  std::erase_if(pinned().uploads, [&](const Upload& upload) {
    if (!arrived(upload)) return false;
    compare(upload);
    return true;
  });
  std::vector<at::Tensor> done;
  std::erase_if(pinned().downloads, [&](Download& download) {
    if (!arrived(download)) return false;
    done.push_back(download.values);
    appear(download);
    done.push_back(download.to);
    return true;
  });
  return done;
}

}  // namespace tanren::sim
