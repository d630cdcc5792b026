// The messages of the control channel, and the lines of text that carry them. A message is one
// line: its word and its fields, a blank between them; the last field may contain blanks.
//
//   word     fields                     from → to         when
//   hello    version run size rank pid  client → server   first; any other beginning is refused,
//            machine                                      and so is another kControlVersion
//   no       reason                     server → client   its hello is refused
//   welcome  pid machine                server → clients  all ranks have connected
//   state    text                       either            the sender's progress has changed
//   fail     text                       client → server   the sender has failed
//   news     text                       server → clients  the first failure of any rank
//   ask      number part first awaited  client → server   which ranks are late? The wait for
//            phrase                                       operation `number` of the part of this
//                                                         index and lowest rank, or for a message
//                                                         of rank `awaited` (below 0: none), ended
//                                                         without failure
//   ask                                 server → clients  a rank has asked that
//   here     numbers firsts awaited     client → server   reply to ask, by index of parts: the
//            part number text                             operations that it has started ("5,0,2"),
//                                                         the lowest ranks of its parts ("0,-1,2");
//                                                         the rank of the message or the part and
//                                                         number of the operation that it waits
//                                                         for, and the text of it
//   answer   text                       server → client   to its ask: all have replied, or
//                                                         kAnswerTimeout is over
//   bye                                 either            the sender has finished
//   left     rank                       server → clients  that rank has said bye
//
// Invariant: nothing blocks and nothing throws; an unverified peer can use only a bounded amount of
// memory. Called by the mailbox and by both ends.
#pragma once

#include "tanren/base/text.h"
#include "tanren/comm/sockets.h"

#include <poll.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

// Raise it if the table above changes, because ranks of different versions would misread each
// other.
constexpr int64_t kControlVersion = 2;
// A client's thread replies at once, whatever its run does.
constexpr std::chrono::seconds kAnswerTimeout{3};
// The longest time between two rounds of an end's thread.
constexpr std::chrono::milliseconds kControlPause{250};

struct ControlMessage {
  enum Word { hello, no, welcome, state, fail, news, ask, here, answer, bye, left, unknown };
  static constexpr std::array<std::string_view, unknown> kWords = {
      "hello", "no", "welcome", "state", "fail", "news", "ask", "here", "answer", "bye", "left"};

  // The line of a message.
  template <class... Fields>
  static std::string line(Word word, const Fields&... fields) {
    std::string line(kWords[word]);
    ((line += fmt::format(" {}", fields)), ...);
    return line;
  }

  // Parses a received line.
  explicit ControlMessage(std::string line);
  std::string next();                   // takes the next field from `text`
  int64_t next_number();                // -1 if it is no number
  std::vector<int64_t> next_numbers();  // of a field "5,0,2"; empty if it begins with no number

  std::string text;  // the fields that have not been taken
  Word word;
};

// `text` in a form that a line may contain: control characters become blanks, and text that is too
// long is cut.
std::string as_control_text(std::string_view text);

// Lines over a non-blocking socket; closed if there is no socket. One thread.
class ControlLines {
 public:
  static constexpr size_t kMaxLine = 8192;

  explicit ControlLines(Socket socket = {})
      : socket_(std::move(socket)), open_(static_cast<bool>(socket_)) {}

  int descriptor() const { return socket_.descriptor(); }
  // The entry for poll(), which ignores closed connections.
  pollfd polled() const;
  // Whether both sides can still send.
  bool is_open() const { return open_; }
  // Why it is not open; empty after an orderly end.
  const std::string& why_closed() const { return why_; }

  // Sends as much as possible, and returns the complete lines received so far. Closes at the end,
  // on an error and on a line that is too long.
  std::vector<std::string> received();
  // Appends the line to those not sent yet, and sends as much as possible without waiting.
  void send(std::string_view line);
  void flush();
  bool has_unsent() const { return open_ && !unsent_.empty(); }

 private:
  void close(const std::string& why);

  Socket socket_;
  std::string unread_, unsent_, why_;
  bool open_;
};

// Sends what is left, announces the end of sending, and reads until the others have closed, because
// closing a connection with unread bytes would discard the bytes just sent. At most half a second.
void take_farewell(std::span<ControlLines> connections);

}  // namespace tanren
