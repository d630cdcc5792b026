// Lines of text over a non-blocking socket, as the control channel sends them. Invariant: nothing
// blocks and nothing throws; an unverified peer can use only a bounded amount of memory. One
// thread. Called by control.cpp.
#pragma once

#include "tanren/comm/sockets.h"

#include <string>
#include <string_view>
#include <vector>

namespace tanren {

class ControlLines {
 public:
  static constexpr size_t kMaxLine = 8192;

  explicit ControlLines(Socket socket) : socket_(std::move(socket)) {}

  int descriptor() const { return socket_.descriptor(); }
  // Whether both sides can still send.
  bool is_open() const { return open_; }
  // Why it is not open; empty after an orderly end.
  const std::string& why_closed() const { return why_; }

  // The complete lines received so far. Closes at the end, on an error and on a line that is too
  // long.
  std::vector<std::string> received();
  // Appends the line to those not sent yet, and sends as much as goes without waiting.
  void send(std::string_view line);
  void flush();
  bool has_unsent() const { return open_ && !unsent_.empty(); }
  // Ends sending; incoming lines can still be read.
  void end_sending();
  void close(const std::string& why);

 private:
  Socket socket_;
  std::string unread_, unsent_, why_;
  bool open_ = true;
};

// `text` as it may be in a line: control characters become blanks, and text that is too long is
// cut.
std::string as_control_text(std::string_view text);

}  // namespace tanren
