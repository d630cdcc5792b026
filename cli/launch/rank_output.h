// What the ranks of `tanren launch` print, as whole lines. Rank 0's stdout goes to stdout byte by byte,
// as of one process; everything else goes to stderr, each line behind "[rank 1] ". So stdout is what
// one process prints, and merged into one file (2>&1) no line stands inside another.
// A line of a rank's stderr is held for two seconds, unless the rank prints more on stdout: if all ranks
// refuse the same input, launch can say it once. One thread; used by launch.cpp.
#pragma once

#include "cli/outlet.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren::cli {

// The lines of a stream whose ends are still open, as a terminal would show them: of a line that was
// drawn over after a carriage return only the last state.
class LineSplitter {
 public:
  // The lines that `text` completes, without their ends. One of more than 64 KiB comes in parts.
  std::vector<std::string> add(std::string_view text);
  // What stands behind the last line end, if anything.
  std::optional<std::string> rest();

 private:
  std::string line_;
  bool returned_ = false;  // the next character draws over the line
};

class RankOutput {
 public:
  using Clock = std::chrono::steady_clock;

  // Writes to this process's stdout and stderr.
  RankOutput();
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Pipes for the stdout and stderr of the next child, rank `rank`: the ends that it writes to, which
  // the caller closes when the child has them. `out` is -1 where the child shares this process's
  // stdout: rank 0 on a terminal, so that a progress bar is one.
  struct Ends {
    int out = -1;
    int err = -1;
  };
  Ends open(int rank);

  // Waits until a rank printed, `other` is readable, a reader took text, or `until`; then passes on
  // what is there.
  void wait(int other, Clock::time_point until);

  // Below, `child` counts in the order of `open`.
  // The child ended: what it left in its pipes counts, its half lines become lines, and what is held
  // of it stays held until somebody releases it.
  void child_ended(size_t child);
  // Its lines that are held, each with its end.
  std::string held(size_t child) const;
  void release_held();
  void release_held(size_t child);
  void drop_held() { held_.clear(); }
  // The last line of its stderr that is not blank.
  const std::string& last_error_line(size_t child) const { return ranks_[child].last_error_line; }

  // Text of the launcher itself for stderr, whole lines. Held lines of ranks stay held.
  void say(const std::string& text);
  // When all processes ended: takes what is left of them.
  void take_rest();
  // Waits until the readers took everything, or `other` is readable.
  void write_rest(int other);

 private:
  struct Rank {
    int number = 0;
    std::string last_error_line;
  };
  struct Stream {
    size_t child = 0;
    bool is_err = false;
    int descriptor = -1;  // -1: ended
    std::string begun;    // what passes as it is: behind the last line end
    LineSplitter splitter;
  };
  struct Held {
    size_t child = 0;
    Clock::time_point until;
    std::string line;
  };

  int add_stream(size_t child, bool is_err);
  bool passes_as_is(const Stream& stream) const {
    return ranks_[stream.child].number == 0 && !stream.is_err;
  }
  bool may_read(const Stream& stream);
  void poll(int other, Clock::time_point until);
  bool take(Stream& stream);
  void take_line(const Stream& stream, const std::string& line);
  void pass_on(Stream& stream, size_t size);
  void end_line(Stream& stream);
  void end_stream(Stream& stream);
  void print_labelled(size_t child, const std::string& line);
  template <class Chosen>
  void release_if(const Chosen& chosen);
  void flush();

  // One outlet, where stdout and stderr are one file: a line of the one must not be cut by the other.
  Outlet& for_stderr() { return merged_ ? out_ : err_; }

  Outlet out_;
  Outlet err_;
  bool merged_ = false;
  bool beside_a_bar_ = false;  // rank 0 draws on the terminal that our lines go to
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  std::vector<Held> held_;
};

}  // namespace tanren::cli
