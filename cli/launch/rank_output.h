// The output of the ranks of `tanren launch`, as whole lines. Rank 0's stdout goes to stdout
// unchanged, as that of one process. All other output goes to stderr, each line after "[rank 1] ".
// So stdout is the same as without launch, and in one merged file (2>&1) no line is cut by another.
// A line of a rank's stderr is held for two seconds, unless the rank prints more on stdout. If all
// ranks refuse the same input, launch can then print the refusal once. One thread; used by
// launch.cpp.
#pragma once

#include "tanren/base/text.h"
#include "cli/outlet.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tanren::cli {

// Splits a stream into lines as a terminal would show them: a line that is redrawn after a carriage
// return has only its last state. An unfinished line is kept until its end arrives.
class LineSplitter {
 public:
  // The lines that `text` completes, without their ends. A line of more than 64 KiB comes in parts.
  std::vector<std::string> add(std::string_view text);
  // The text after the last line end, if any.
  std::optional<std::string> rest();

 private:
  std::string line_;
  bool returned_ = false;  // the next character overwrites the line
};

class RankOutput {
 public:
  using Clock = std::chrono::steady_clock;

  // Writes to this process's stdout and stderr.
  RankOutput();
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Creates pipes for the stdout and stderr of the next child, rank `rank`. Returns the ends that
  // the child writes to; the caller closes them once the child has them. `out` is -1 if the child
  // shares this process's stdout: rank 0 on a terminal, so that its progress bar works.
  struct Ends {
    int out = -1;
    int err = -1;
  };
  Ends open(int rank);

  // Waits until a rank printed, `other` is readable, a reader took text, or `until`; then passes
  // the available output on.
  void wait(int other, Clock::time_point until);

  // In this and the functions below, `child` is an index in the order of `open`. Call this when the
  // child ended: it reads the rest of the child's pipes and completes unfinished lines. Held lines
  // of the child stay held until they are released.
  void child_ended(size_t child);
  // The child's held lines, each with its line end.
  std::string held(size_t child) const;
  void release_held();
  void release_held(size_t child);
  void drop_held() { held_.clear(); }
  // The last line of the child's stderr that is not blank.
  const std::string& last_error_line(size_t child) const { return ranks_[child].last_error_line; }

  // Prints the launcher's own text on stderr, in whole lines. Held lines of ranks stay held.
  void say(const std::string& text);
  // Call this when all processes ended: takes the rest of their output.
  void take_rest();
  // Waits until the readers took all text, or `other` is readable.
  void write_rest(int other);
  // Whether text for stdout could not be written, though its reader is there.
  bool is_lost() const { return out_.lost(); }

 private:
  struct Rank {
    int number = 0;
    std::string last_error_line;
  };
  struct Stream {
    size_t child = 0;
    bool is_err = false;
    int descriptor = -1;  // -1: ended
    std::string begun;    // rank 0's stdout after its last line end
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
  // Whether `other` is readable.
  bool poll(int other, Clock::time_point until);
  bool take(Stream& stream);
  void take_line(const Stream& stream, const std::string& line);
  void pass_on(Stream& stream, size_t size);
  void end_line(Stream& stream);
  void end_stream(Stream& stream);
  void print_labelled(size_t child, const std::string& line);
  template <class Chosen>
  void release_if(const Chosen& chosen);
  void flush();

  // The same outlet if stdout and stderr are one file: a line of one must not be cut by the other.
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
