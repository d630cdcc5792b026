// A descriptor that is written without ever waiting for its reader: what does not fit stays here. So a
// pager that nobody scrolls, or a stopped terminal, cannot keep the launcher from hearing signals.
// The descriptor's flags stay as they are: other processes share them. One thread; used by
// rank_output.
#pragma once

#include <string>
#include <string_view>

namespace tanren::cli {

class Outlet {
 public:
  explicit Outlet(int descriptor) : descriptor_(descriptor) {}

  void add(std::string_view text);
  // Writes what the reader takes now. What cannot be written (a full disk) is dropped.
  void flush();

  int descriptor() const { return descriptor_; }
  bool pending() const { return !text_.empty(); }
  bool full() const { return text_.size() > kMost; }
  bool closed() const { return closed_; }  // nobody reads any more
  // Whether the last byte that was added ends a line, or none was.
  bool at_line_start() const { return at_line_start_; }

 private:
  static constexpr size_t kMost = size_t{1} << 20;

  int descriptor_;
  std::string text_;
  bool closed_ = false;
  bool at_line_start_ = true;
};

}  // namespace tanren::cli
