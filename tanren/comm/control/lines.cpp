#include "tanren/comm/control/lines.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tanren {

std::vector<std::string> ControlLines::received() {
  std::array<char, 4096> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): recv fills it
  std::vector<std::string> lines;
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
  // A peer that has left this much unread is as good as gone; its connection will report that.
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
    if (num < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (num < 0) return;  // broken: what was received before that is still to be read
    unsent_.erase(0, static_cast<size_t>(num));
  }
}

void ControlLines::end_sending() {
  if (open_) ::shutdown(descriptor(), SHUT_WR);
}

void ControlLines::close(const std::string& why) {
  if (!open_) return;
  open_ = false;
  why_ = why;
  socket_ = Socket();
}

std::string as_control_text(std::string_view text) {
  constexpr size_t kMaxText = 4000;
  std::string line(text.substr(0, kMaxText));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return line;
}

}  // namespace tanren
