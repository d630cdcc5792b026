#include "tanren/data/text/line_reader.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

namespace tanren {

namespace {

constexpr size_t kReadPart = size_t{1} << 16;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

constexpr int kLookAtStop = 100;  // milliseconds

}  // namespace

bool is_pipe(const std::filesystem::path& source) {
  std::error_code unknown;
  return source == "-" || std::filesystem::is_fifo(source, unknown) ||
         std::filesystem::is_character_file(source, unknown);
}

LineReader::LineReader(const std::filesystem::path& source, std::string what, std::string encoding,
                       const std::atomic<bool>* stop, size_t longest)
    : name_(source == "-" ? "standard input" : source.string()),
      what_(std::move(what)),
      encoding_(std::move(encoding)),
      stop_(stop),
      longest_(longest),
      check_("[" + what_ + "] " + name_, "convert it") {
  if (source == "-") {
    waited_ = STDIN_FILENO;
  } else if (is_pipe(source)) {
    // Opens a pipe without waiting for its writer, so that a stop can end that wait later.
    waited_ = ::open(source.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (waited_ < 0) {
      throw InputError("[file] cannot read " + source.string() + " (" + std::strerror(errno) +
                       "); check the path");
    }
  } else {
    file_ = open_file(source);
  }
}

LineReader::~LineReader() {
  if (waited_ > STDIN_FILENO) ::close(waited_);
}

// Waits at most kLookAtStop for input or the end. A failure counts as input, because the read then
// reports it.
bool LineReader::has_input() {
  pollfd input{.fd = waited_, .events = POLLIN, .revents = 0};
  const int ready = ::poll(&input, 1, kLookAtStop);
  return ready > 0 || (ready < 0 && errno != EINTR);
}

// Like OpenFile::read, but standard input and pipes give the bytes that are available; 0 is the
// end.
size_t LineReader::read(char* to, size_t most) {
  if (file_) return file_->read(to, most);
  for (;;) {
    if (stop_ != nullptr && stop_->load()) throw StoppedReading();
    if (!has_input()) continue;
    const ssize_t got = ::read(waited_, to, most);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINTR || errno == EAGAIN) continue;
    throw InputError("[" + what_ + "] cannot read " + name_ + " (" + std::strerror(errno) +
                     "); give it a file or a pipe");
  }
}

bool LineReader::fill() {
  if (ended_) return false;
  buffer_.erase(0, std::exchange(begin_, 0));
  const size_t before = buffer_.size();
  buffer_.resize(before + kReadPart);
  size_t got = 0;
  try {
    got = read(buffer_.data() + before, kReadPart);
  } catch (...) {
    buffer_.resize(before);
    throw;
  }
  buffer_.resize(before + got);
  ended_ = file_ ? got < kReadPart : got == 0;
  check_.add(std::string_view(buffer_).substr(before), /*any_byte=*/true);
  const bool starts = number_ == 0 && !past_mark_ && (buffer_.size() >= kMark.size() || ended_);
  if (starts) {
    past_mark_ = true;
    if (std::string_view(buffer_).starts_with(kMark)) begin_ = kMark.size();
  }
  return got > 0;
}

// Where the next line ends. npos if it ends with the file or, without `waits`, has not come yet.
size_t LineReader::find_end(bool waits) {
  size_t end = buffer_.find('\n', begin_);
  while (end == std::string::npos) {
    size_t searched = buffer_.size() - begin_;
    if (searched > longest_) {
      throw DataError(fmt::format("[{}] {}:{}: the line is longer than {}; is this a text?", what_,
                                  name_, number_ + 1, size_text(static_cast<int64_t>(longest_))));
    }
    if (!waits && !ended_ && !has_input()) break;
    const bool had_mark = past_mark_;
    if (!fill()) break;
    if (past_mark_ != had_mark) searched = 0;  // a mark is no part of the line
    end = buffer_.find('\n', begin_ + searched);
  }
  return end;
}

bool LineReader::is_ready() {
  return file_ || find_end(/*waits=*/false) != std::string::npos || ended_;
}

bool LineReader::next(std::string& line) {
  const size_t end = find_end(/*waits=*/true);
  if (end == std::string::npos && begin_ == buffer_.size()) return false;
  line.assign(buffer_, begin_, std::min(end, buffer_.size()) - begin_);
  begin_ = std::min(end + (end == std::string::npos ? 0 : 1), buffer_.size());
  ending_ = end == std::string::npos ? "" : "\n";
  if (!line.empty() && line.back() == '\r') {
    line.pop_back();
    ending_ = "\r" + ending_;
  }
  ++number_;
  return true;
}

std::string LineReader::text(const std::string& line, std::string& problem) const {
  if (encoding_ == "latin-1") return decoded_text(line, encoding_, name_);
  if (const auto bad = first_bad_byte(line)) {
    problem = fmt::format(
        "byte {} (0x{:02X}) is no UTF-8; convert it, or set data.encoding = \"latin-1\"", *bad + 1,
        static_cast<unsigned char>(line[*bad]));
  }
  return line;
}

void LineReader::make_text(std::string& record, int64_t first) const {
  if (encoding_ == "latin-1") {
    const bool is_ascii =
        std::all_of(record.begin(), record.end(), [](char c) { return (c & 0x80) == 0; });
    if (!is_ascii) record = decoded_text(std::move(record), encoding_, name_);
    return;
  }
  const auto bad = first_bad_byte(record);
  if (!bad) return;
  const std::string_view sound = std::string_view(record).substr(0, *bad);
  const auto line = first + std::count(sound.begin(), sound.end(), '\n');
  const size_t before = sound.rfind('\n') + 1;  // 0 if there is none
  throw DataError(fmt::format(
      "[{}] {}:{}: byte {} (0x{:02X}) is no UTF-8; convert the file, or set data.encoding = "
      "\"latin-1\" if all files are that",
      what_, name_, line, *bad - before + 1, static_cast<unsigned char>(record[*bad])));
}

}  // namespace tanren
