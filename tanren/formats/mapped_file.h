// A file mapped into memory, copy on write: its pages are read when they are touched, and writing
// to them changes nothing on disk. Tensors that view the mapping keep it alive.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

namespace tanren {

class MappedFile {
 public:
  // InputError naming the path and the reason. An empty file has no data.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  char* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(char* data, size_t size) : data_(data), size_(size) {}

  char* data_;
  size_t size_;
};

}  // namespace tanren
