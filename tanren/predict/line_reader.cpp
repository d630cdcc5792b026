#include "tanren/predict/line_reader.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tanren {

namespace {

constexpr size_t kPart = size_t{1} << 16;
constexpr size_t kLongestLine = size_t{64} << 20;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

std::filesystem::path file_of(const std::filesystem::path& source) {
  return source == "-" ? "/dev/stdin" : source;
}

}  // namespace

LineReader::LineReader(const std::filesystem::path& source, std::string encoding)
    : name_(source == "-" ? "standard input" : source.string()),
      encoding_(std::move(encoding)),
      file_(open_file(file_of(source))),
      check_("[predict] " + name_, "convert it") {}

bool LineReader::fill() {
  if (ended_) return false;
  buffer_.erase(0, std::exchange(begin_, 0));
  const size_t before = buffer_.size();
  buffer_.resize(before + kPart);
  const size_t got = file_.read(buffer_.data() + before, kPart);
  buffer_.resize(before + got);
  ended_ = got < kPart;
  check_.add(std::string_view(buffer_).substr(before), /*any_byte=*/true);
  if (number_ == 0 && before == 0 && std::string_view(buffer_).starts_with(kMark)) {
    begin_ = kMark.size();
  }
  return got > 0;
}

bool LineReader::next(std::string& line) {
  size_t seen = begin_;
  size_t end = buffer_.find('\n', seen);
  while (end == std::string::npos) {
    const size_t searched = buffer_.size() - begin_;
    if (searched > kLongestLine) {
      throw DataError(fmt::format("[predict] {}:{}: the line is longer than {}; is this a text?",
                                  name_, number_ + 1, size_text(kLongestLine)));
    }
    if (!fill()) break;
    end = buffer_.find('\n', begin_ + searched);
  }
  if (end == std::string::npos && begin_ == buffer_.size()) return false;
  line.assign(buffer_, begin_, std::min(end, buffer_.size()) - begin_);
  begin_ = std::min(end + (end == std::string::npos ? 0 : 1), buffer_.size());
  if (!line.empty() && line.back() == '\r') line.pop_back();
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
