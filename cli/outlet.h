// A file descriptor that is written without waiting for its reader. Text that the reader does not
// take yet is kept here, so a paused pager or a stopped terminal cannot keep the launcher from
// handling signals. The descriptor's flags are not changed, because other processes share them. One
// thread; used by rank_output.
#pragma once

#include <string>
#include <string_view>

namespace tanren::cli {

class Outlet {
 public:
  explicit Outlet(int descriptor) : descriptor_(descriptor) {}

  void add(std::string_view text);
  // Writes what the reader takes now. Text that cannot be written (a full disk) is dropped.
  void flush();

  int descriptor() const { return descriptor_; }
  bool pending() const { return !text_.empty(); }
  bool full() const { return text_.size() > kMost; }
  bool closed() const { return closed_; }  // the reader is gone
  bool lost() const { return lost_; }      // text was dropped although the reader is still there
  // Whether the last byte added ends a line; true if none was added.
  bool at_line_start() const { return at_line_start_; }

 private:
  static constexpr size_t kMost = size_t{1} << 20;

  int descriptor_;
  std::string text_;
  bool closed_ = false;
  bool lost_ = false;
  bool at_line_start_ = true;
};

}  // namespace tanren::cli
