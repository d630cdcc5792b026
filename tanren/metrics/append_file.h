// AppendFile: a file that grows by whole items (lines, records). If the disk is full, the items
// that fit stay and the rest waits in memory for the next write. The file always ends with a whole
// item, and an item is never written twice. For one thread. Called by queued_sink.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

class AppendFile {
 public:
  // Opens `file` for appending; creates it if absent. RunError with the reason.
  explicit AppendFile(std::filesystem::path file);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Append an item's bytes to buffer(), then call end_item(). The bytes wait in memory until
  // write(), which must not be called in the middle of an item.
  std::string& buffer() { return waiting_; }
  void end_item() { ends_.push_back(waiting_.size()); }

  // Writes the waiting bytes, and fsyncs the file if `sync`. Returns 0, or the errno of the
  // failure.
  int write(bool sync);
  // Discards the waiting bytes.
  void drop();

  size_t bytes_waiting() const { return waiting_.size(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  // Removes the torn item from the file's end, and the items written whole from the buffer.
  void keep_whole(size_t written);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string waiting_;
  std::vector<size_t> ends_;  // of the items in waiting_
};

}  // namespace tanren
