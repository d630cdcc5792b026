#include "tanren/predict/line_reader.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/predict/check_paths.h"
#include "tanren/predict/rows.h"

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

constexpr size_t kPart = size_t{1} << 16;
constexpr size_t kLongestLine = size_t{64} << 20;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

}  // namespace

LineReader::LineReader(const std::filesystem::path& source, std::string encoding,
                       const std::atomic<bool>* stop)
    : name_(source == "-" ? "standard input" : source.string()),
      encoding_(std::move(encoding)),
      stop_(stop),
      check_("[predict] " + name_, "convert it") {
  if (source == "-") {
    waited_ = STDIN_FILENO;
  } else if (is_stream(source)) {
    // A pipe that nobody writes to yet opens at once, so that the wait for its writer can end.
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

// As OpenFile::read, but what is waited for gives what there is; 0 is the end.
size_t LineReader::read(char* to, size_t most) {
  if (file_) return file_->read(to, most);
  constexpr int kLookAtStop = 100;  // milliseconds
  for (;;) {
    if (stop_ != nullptr && stop_->load()) throw StoppedReading();
    pollfd input{.fd = waited_, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, kLookAtStop);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = ::read(waited_, to, most);
    if (got >= 0) return static_cast<size_t>(got);
    if (errno == EINTR || errno == EAGAIN) continue;
    throw InputError("[predict] cannot read " + name_ + " (" + std::strerror(errno) +
                     "); give it a file or a pipe");
  }
}

bool LineReader::fill() {
  if (ended_) return false;
  buffer_.erase(0, std::exchange(begin_, 0));
  const size_t before = buffer_.size();
  buffer_.resize(before + kPart);
  size_t got = 0;
  try {
    got = read(buffer_.data() + before, kPart);
  } catch (...) {
    buffer_.resize(before);
    throw;
  }
  buffer_.resize(before + got);
  ended_ = file_ ? got < kPart : got == 0;
  check_.add(std::string_view(buffer_).substr(before), /*any_byte=*/true);
  const bool starts = number_ == 0 && !past_mark_ && (buffer_.size() >= kMark.size() || ended_);
  if (starts) {
    past_mark_ = true;
    if (std::string_view(buffer_).starts_with(kMark)) begin_ = kMark.size();
  }
  return got > 0;
}

bool LineReader::next(std::string& line) {
  size_t seen = begin_;
  size_t end = buffer_.find('\n', seen);
  while (end == std::string::npos) {
    size_t searched = buffer_.size() - begin_;
    if (searched > kLongestLine) {
      throw DataError(fmt::format("[predict] {}:{}: the line is longer than {}; is this a text?",
                                  name_, number_ + 1, size_text(kLongestLine)));
    }
    const bool had_mark = past_mark_;
    if (!fill()) break;
    if (past_mark_ != had_mark) searched = 0;  // a mark is no part of the line
    end = buffer_.find('\n', begin_ + searched);
  }
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

bool OpenQuote::at_end_of(const std::string& record) {
  for (; at_ < record.size(); ++at_) {
    const char c = record[at_];
    if (state_ == State::quoted) {
      if (c == '"') state_ = State::closed;
    } else if (state_ == State::closed && c == '"') {
      state_ = State::quoted;  // a quote inside the cell
    } else if (c == ',') {
      state_ = State::before;
    } else if (state_ == State::before && c == '"') {
      state_ = State::quoted;
    } else if (c != ' ' && c != '\t') {
      state_ = State::plain;
    } else if (state_ == State::closed) {
      state_ = State::plain;
    }
  }
  return state_ == State::quoted;
}

bool split_record(const std::string& record, char separator, std::vector<std::string>& cells,
                  std::string& problem) {
  cells.clear();
  size_t at = 0;
  for (;;) {
    const size_t begin =
        separator == ',' ? std::min(record.find_first_not_of(" \t", at), record.size()) : at;
    std::string cell;
    if (separator == ',' && begin < record.size() && record[begin] == '"') {
      size_t quote = begin + 1;
      for (;; ++quote) {
        const size_t next = record.find('"', quote);
        if (next == std::string::npos) return false;
        cell.append(record, quote, next - quote);
        quote = next + 1;
        if (quote >= record.size() || record[quote] != '"') break;
        cell += '"';
      }
      at = std::min(record.find_first_not_of(" \t", quote), record.size());
      if (at < record.size() && record[at] != separator) {
        problem = "a cell goes on after its closing quote; write quotes inside a cell twice (\"\")";
        at = std::min(record.find(separator, at), record.size());
      }
    } else {
      const size_t end = std::min(record.find(separator, at), record.size());
      cell.assign(record, at, end - at);
      at = end;
    }
    cells.push_back(std::move(cell));
    if (at >= record.size()) return true;
    ++at;  // the separator
  }
}

}  // namespace tanren
