#include "cli/launch/rank_output.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tanren::cli {

namespace {

constexpr size_t kLongestLine = size_t{64} << 10;
constexpr size_t kMostHeld = 1000;  // lines
constexpr int kPiecesOfPipe = 17;   // reads that empty the largest pipe
// How long a line is held: enough for a process to end after its last line, while it unloads its
// libraries.
constexpr std::chrono::seconds kHeldFor{2};

bool same_file(int one, int other) {
  struct stat first {};
  struct stat second {};
  return ::fstat(one, &first) == 0 && ::fstat(other, &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

int milliseconds_until(RankOutput::Clock::time_point until) {
  const auto left = until - RankOutput::Clock::now();
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(milliseconds, 0, 60'000));
}

}  // namespace

std::vector<std::string> LineSplitter::add(std::string_view text) {
  std::vector<std::string> lines;
  for (const char c : text) {
    if (c == '\n' || line_.size() >= kLongestLine) {
      lines.push_back(std::exchange(line_, {}));
      returned_ = false;
      if (c == '\n') continue;
    }
    if (c == '\r') {
      returned_ = true;
      continue;
    }
    if (std::exchange(returned_, false)) line_.clear();
    line_ += c;
  }
  return lines;
}

std::optional<std::string> LineSplitter::rest() {
  returned_ = false;
  if (line_.empty()) return std::nullopt;
  return std::exchange(line_, {});
}

RankOutput::RankOutput()
    : out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      merged_(same_file(STDOUT_FILENO, STDERR_FILENO)),
      beside_a_bar_(::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {}

RankOutput::~RankOutput() {
  for (Stream& stream : streams_) {
    if (stream.descriptor >= 0) ::close(stream.descriptor);
  }
}

int RankOutput::add_stream(size_t child, bool is_err) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) {
    throw RunError(
        fmt::format("[launch] no pipe for rank {}: {}; start fewer ranks, or raise ulimit -n",
                    ranks_[child].number, std::strerror(errno)));
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  streams_.push_back({child, is_err, ends[0], "", {}});
  return ends[1];
}

RankOutput::Ends RankOutput::open(int rank) {
  const size_t child = ranks_.size();
  ranks_.push_back({rank, ""});
  Ends ends;
  if (rank != 0 || ::isatty(STDOUT_FILENO) != 1) ends.out = add_stream(child, false);
  ends.err = add_stream(child, true);
  return ends;
}

// False while the reader of our output takes nothing: the ranks then wait, as they would without
// launch.
bool RankOutput::may_read(const Stream& stream) {
  return stream.descriptor >= 0 && !(passes_as_is(stream) ? out_ : for_stderr()).full();
}

bool RankOutput::poll(int other, Clock::time_point until) {
  std::vector<pollfd> asked = {{other, POLLIN, 0}};
  for (const Outlet* outlet : {&out_, &err_}) {
    asked.push_back({outlet->pending() ? outlet->descriptor() : -1, POLLOUT, 0});
  }
  for (const Stream& stream : streams_) {
    asked.push_back({may_read(stream) ? stream.descriptor : -1, POLLIN, 0});
  }
  return ::poll(asked.data(), asked.size(), milliseconds_until(until)) > 0 && asked[0].revents != 0;
}

void RankOutput::wait(int other, Clock::time_point until) {
  for (const Held& line : held_) until = std::min(until, line.until);
  poll(other, until);
  for (Stream& stream : streams_) {
    if (may_read(stream)) take(stream);
  }
  const auto now = Clock::now();
  const bool many = held_.size() > kMostHeld;
  release_if([&](const Held& line) { return many || line.until <= now; });
  flush();
}

// Reads one piece; returns whether there was one.
bool RankOutput::take(Stream& stream) {
  std::array<char, size_t{64} << 10> buffer;
  const ssize_t got = ::read(stream.descriptor, buffer.data(), buffer.size());
  if (got < 0) return false;
  if (got == 0) {
    end_stream(stream);
    return false;
  }
  const std::string_view text(buffer.data(), static_cast<size_t>(got));
  if (passes_as_is(stream)) {
    stream.begun += text;
    const size_t line_end = stream.begun.rfind('\n') + 1;  // 0 if there is none
    const size_t whole = stream.begun.size() < kLongestLine ? line_end : stream.begun.size();
    if (whole > 0) pass_on(stream, whole);
  } else {
    for (const auto& line : stream.splitter.add(text)) take_line(stream, line);
  }
  return true;
}

void RankOutput::pass_on(Stream& stream, size_t size) {
  release_held(stream.child);
  out_.add(std::string_view(stream.begun).substr(0, size));
  stream.begun.erase(0, size);
  if (!out_.closed()) return;
  // The reader of our stdout is gone: close the pipe, so that the rank notices as one process
  // would.
  ::close(std::exchange(stream.descriptor, -1));
}

void RankOutput::take_line(const Stream& stream, const std::string& line) {
  if (!stream.is_err) {
    release_held(stream.child);
    print_labelled(stream.child, line);
    return;
  }
  held_.push_back({stream.child, Clock::now() + kHeldFor, line});
  if (!trimmed(line).empty()) ranks_[stream.child].last_error_line = trimmed(line);
}

void RankOutput::end_line(Stream& stream) {
  if (const auto rest = stream.splitter.rest()) take_line(stream, *rest);
  if (!stream.begun.empty()) pass_on(stream, stream.begun.size());
}

void RankOutput::end_stream(Stream& stream) {
  end_line(stream);
  if (stream.descriptor >= 0) ::close(std::exchange(stream.descriptor, -1));
}

void RankOutput::child_ended(size_t child) {
  for (Stream& stream : streams_) {
    if (stream.child != child || stream.descriptor < 0) continue;
    // The pipe holds the rest of the child's output. A process that the child left behind may
    // still write to it, so the number of reads is bounded.
    for (int i = 0; i < kPiecesOfPipe && stream.descriptor >= 0 && take(stream);) ++i;
    end_line(stream);
  }
  for (Held& line : held_) {
    if (line.child == child) line.until = Clock::time_point::max();
  }
}

std::string RankOutput::held(size_t child) const {
  std::string text;
  for (const Held& line : held_) {
    if (line.child == child) text += line.line + "\n";
  }
  return text;
}

void RankOutput::release_held(size_t child) {
  release_if([&](const Held& line) { return line.child == child; });
}

void RankOutput::release_held() {
  release_if([](const Held&) { return true; });
}

template <class Chosen>
void RankOutput::release_if(const Chosen& chosen) {
  std::vector<Held> left;
  for (Held& line : std::exchange(held_, {})) {
    if (chosen(line)) {
      print_labelled(line.child, line.line);
    } else {
      left.push_back(std::move(line));
    }
  }
  held_ = std::move(left);
}

void RankOutput::print_labelled(size_t child, const std::string& line) {
  say(fmt::format("[rank {}] {}\n", ranks_[child].number, line));
}

void RankOutput::say(const std::string& text) {
  // Rank 0's last line is unfinished, and ours would continue it.
  if (merged_ && !out_.at_line_start()) out_.add("\n");
  // On a terminal, clears rank 0's progress bar, which rank 0 draws again below.
  for_stderr().add((beside_a_bar_ ? "\r\x1b[K" : "") + text);
}

void RankOutput::flush() {
  out_.flush();
  err_.flush();
}

void RankOutput::take_rest() {
  for (size_t child = 0; child < ranks_.size(); ++child) child_ended(child);
  for (Stream& stream : streams_) end_stream(stream);
}

void RankOutput::write_rest(int other) {
  for (flush(); out_.pending() || err_.pending(); flush()) {
    if (poll(other, Clock::time_point::max())) return;
  }
}

}  // namespace tanren::cli
