#include "tanren/base/text.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace tanren {

std::string to_text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string fixed_text(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

std::string short_text(double value, int digits) { return fmt::format("{:.{}g}", value, digits); }

std::string bytes_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 4) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, bytes < 10 && unit > 0 ? 1 : 0, units[unit]);
}

std::string count_text(int64_t count) {
  const std::string digits = to_text(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string first_line(const std::string& text) {
  std::string_view rest = text, line;
  while (!rest.empty() && trimmed(line).empty()) line = take_line(rest);
  return std::string(line);
}

std::optional<MemoryAmount> parse_memory(std::string_view text) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number > 0)) return std::nullopt;
  std::string unit;
  for (const char c : std::string_view(stop, text.data() + text.size() - stop)) {
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (unit.empty()) {
    if (number < 1) return MemoryAmount{.share = number};
    if (number != std::floor(number)) return std::nullopt;
    return number < 0x1p62 ? std::optional(MemoryAmount{.bytes = static_cast<int64_t>(number)})
                           : std::nullopt;
  }
  if (unit == "%") {
    return number < 100 ? std::optional(MemoryAmount{.share = number / 100}) : std::nullopt;
  }
  const size_t power = std::string_view("bkmgt").find(unit[0]);
  const std::string rest = unit.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "b" || rest == "ib")) {
    return std::nullopt;
  }
  if (power == 0 && !rest.empty()) return std::nullopt;
  const double bytes = number * std::pow(rest == "b" ? 1000.0 : 1024.0, power);
  if (bytes < 1 || bytes >= 0x1p62) return std::nullopt;
  return MemoryAmount{.bytes = static_cast<int64_t>(bytes)};
}

std::string seconds_text(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<long>(std::min(seconds, 3.6e9));
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::optional<double> parse_seconds(std::string_view text) {
  constexpr std::string_view kUnits = "dhms";
  constexpr double kSeconds[] = {86400, 3600, 60, 1};
  std::string_view rest = trimmed(text);
  double sum = 0;
  for (size_t next = 0; !rest.empty();) {  // units before `next` have been read or left out
    const char* const end = rest.data() + rest.size();
    double number = 0;
    const auto [stop, error] = std::from_chars(rest.data(), end, number);
    if (error != std::errc() || !(number >= 0)) return std::nullopt;
    rest = trimmed(std::string_view(stop, static_cast<size_t>(end - stop)));
    const bool is_alone = rest.empty() && next == 0;
    if (rest.empty() && !is_alone) return std::nullopt;
    const size_t unit = is_alone ? kUnits.size() - 1 : kUnits.find(rest.front(), next);
    if (unit == std::string_view::npos) return std::nullopt;
    sum += number * kSeconds[unit];
    next = unit + 1;
    if (!is_alone) rest = trimmed(rest.substr(1));
  }
  return sum > 0 && std::isfinite(sum) ? std::optional(sum) : std::nullopt;
}

namespace {

// The code point at the start of `text` and its number of bytes. A byte that starts no code point
// stands for itself.
std::pair<uint32_t, size_t> first_of(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t bytes = lead < 0x80       ? 1
                       : lead >> 5 == 6  ? 2
                       : lead >> 4 == 14 ? 3
                       : lead >> 3 == 30 ? 4
                                         : 1;
  if (bytes == 1 || bytes > text.size()) return {lead, 1};
  uint32_t code = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if (next >> 6 != 2) return {lead, 1};
    code = code << 6 | (next & 0x3Fu);
  }
  return {code, bytes};
}

struct Range {
  uint32_t first, last;
};
// Unicode's main blocks of combining marks and joiners, and of wide characters (UAX #11).
constexpr Range kNoWidth[] = {
    {0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},   {0x64B, 0x65F},
    {0x200B, 0x200F}, {0x20D0, 0x20F0}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}};
constexpr Range kWide[] = {
    {0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},  {0xA960, 0xA97F}, {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

template <size_t N>
bool is_in(const Range (&ranges)[N], uint32_t code) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](const Range& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

std::string_view take_line(std::string_view& text) {
  const auto end = text.find('\n');
  auto line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

int64_t display_width(std::string_view text) {
  int64_t width = 0;
  while (!text.empty()) {
    const auto [code, bytes] = first_of(text);
    text.remove_prefix(bytes);
    if (code < 0x300) {
      ++width;
    } else if (!is_in(kNoWidth, code)) {
      width += is_in(kWide, code) ? 2 : 1;
    }
  }
  return width;
}

std::string cut_text(std::string_view text, int64_t width) {
  size_t end = text.size();
  while (end > 0 && display_width(text.substr(0, end)) > width) {
    --end;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  }
  return std::string(text.substr(0, end));
}

std::string padded(std::string_view text, int64_t width) {
  const int64_t missing = std::max<int64_t>(0, width - display_width(text));
  return std::string(text) + std::string(static_cast<size_t>(missing), ' ');
}

}  // namespace tanren
