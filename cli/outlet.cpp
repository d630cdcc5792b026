#include "cli/outlet.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace tanren::cli {

namespace {

bool takes_text(int descriptor) {
  pollfd ask{descriptor, POLLOUT, 0};
  return ::poll(&ask, 1, 0) > 0;
}

}  // namespace

void Outlet::add(std::string_view text) {
  if (text.empty()) return;
  at_line_start_ = text.back() == '\n';
  if (!closed_) text_ += text;
}

void Outlet::flush() {
  size_t done = 0;
  while (done < text_.size() && takes_text(descriptor_)) {
    // A pipe that takes any text takes PIPE_BUF bytes without waiting.
    const size_t part = std::min<size_t>(text_.size() - done, PIPE_BUF);
    const ssize_t written = ::write(descriptor_, text_.data() + done, part);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      closed_ = errno == EPIPE || errno == EIO;
      lost_ = lost_ || !closed_;
      done = text_.size();
    }
  }
  text_.erase(0, done);
}

}  // namespace tanren::cli
