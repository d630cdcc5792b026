// AppendFile: a file that grows by whole items (lines, records). Where the disk is full, what fits
// stays and the rest waits in memory to be tried again: the file always ends with a whole item, and
// an item is never written twice. One thread. Called by queued_sink.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

class AppendFile {
 public:
  // Opens `file` for appending, made if absent. RunError with the reason.
  explicit AppendFile(std::filesystem::path file);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Append an item's bytes to buffer(), then call end_item(): nothing of it reaches the file before.
  std::string& buffer() { return waiting_; }
  void end_item() { ends_.push_back(waiting_.size()); }

  // Writes what waits, and brings the file to the disk if `sync`. 0, or the errno of what failed.
  int write(bool sync);
  // Gives up what waits.
  void drop();

  size_t bytes_waiting() const { return waiting_.size(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  // Takes the torn item off the file's end and what is whole off the buffer.
  void keep_whole(size_t written);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::string waiting_;
  std::vector<size_t> ends_;  // of the items in waiting_
};

}  // namespace tanren
