#include "tanren/comm/control/messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace tanren {

ControlMessage::ControlMessage(std::string line) : text(std::move(line)) {
  const auto found = std::find(kWords.begin(), kWords.end(), next());
  word = static_cast<Word>(found - kWords.begin());
}

std::string ControlMessage::next() {
  const size_t blank = text.find(' ');
  std::string field = text.substr(0, blank);
  text.erase(0, blank == std::string::npos ? blank : blank + 1);
  return field;
}

int64_t ControlMessage::next_number() {
  const std::string field = next();
  int64_t value = -1;
  const char* end = field.data() + field.size();
  const auto [stop, error] = std::from_chars(field.data(), end, value);
  return error == std::errc() && stop == end ? value : -1;
}

std::vector<int64_t> ControlMessage::next_numbers() {
  const std::string field = next();
  std::vector<int64_t> values;
  const char* end = field.data() + field.size();
  for (const char* first = field.data(); first < end; ++first) {
    int64_t value = 0;
    const auto [stop, error] = std::from_chars(first, end, value);
    if (error != std::errc()) break;
    values.push_back(value);
    first = stop;
  }
  return values;
}

std::string as_control_text(std::string_view text) {
  constexpr size_t kMaxText = 4000;
  std::string line(text.substr(0, kMaxText));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return line;
}

pollfd ControlLines::polled() const {
  return {descriptor(), static_cast<short>(has_unsent() ? POLLIN | POLLOUT : POLLIN), 0};
}

std::vector<std::string> ControlLines::received() {
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): recv fills it
  std::vector<std::string> lines;
  flush();
  while (open_) {
    const ssize_t num = ::recv(descriptor(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (num < 0 && errno == EINTR) continue;
    if (num < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (num <= 0) {
      close(num == 0 ? "" : std::strerror(errno));
      break;
    }
    unread_.append(buffer.data(), static_cast<size_t>(num));
    size_t first = 0;
    for (size_t end = 0; (end = unread_.find('\n', first)) != std::string::npos; first = end + 1) {
      lines.push_back(unread_.substr(first, end - first));
    }
    unread_.erase(0, first);
    if (unread_.size() > kMaxLine) close("a line without end");
    // A peer that sends without end must not occupy the thread: the rest is read next time.
    if (lines.size() > 64) break;
  }
  return lines;
}

void ControlLines::send(std::string_view line) {
  // A peer that leaves this much unread is probably lost, and its connection will report that.
  constexpr size_t kMaxUnsent = 1U << 20;
  if (!open_ || unsent_.size() > kMaxUnsent) return;
  unsent_.append(line).push_back('\n');
  flush();
}

void ControlLines::flush() {
  while (open_ && !unsent_.empty()) {
    const ssize_t num =
        ::send(descriptor(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (num < 0 && errno == EINTR) continue;
    if (num < 0) return;  // full, or broken: bytes received earlier must still be read
    unsent_.erase(0, static_cast<size_t>(num));
  }
}

void ControlLines::close(const std::string& why) {
  open_ = false;
  why_ = why;
  socket_ = Socket();
}

void take_farewell(std::span<ControlLines> connections) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  for (;;) {
    std::vector<pollfd> polled;
    for (ControlLines& lines : connections) {
      lines.received();
      if (!lines.is_open()) continue;
      if (!lines.has_unsent()) ::shutdown(lines.descriptor(), SHUT_WR);
      polled.push_back(lines.polled());
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    if (polled.empty() || left.count() <= 0) return;
    ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  }
}

}  // namespace tanren
