#include "tanren/monitor/monitor.h"
#include "tanren/base/error.h"
#include "tanren/monitor/nvml.h"
#include "tanren/monitor/print.h"
#include "cli/stop_signals.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <iostream>
#include <sstream>

namespace tanren::cli {

namespace {

// A handler can only reach static storage.
volatile std::sig_atomic_t end_requested = 0;
volatile std::sig_atomic_t pause_requested = 0;
volatile std::sig_atomic_t resized = 0;

void on_end(int) { end_requested = 1; }
void on_pause(int) { pause_requested = 1; }
void on_resize(int) { resized = 1; }

// Without SA_RESTART: a signal interrupts the wait for a key.
void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

double interval_of(const std::string& text, bool once) {
  if (text.empty()) return once ? 0.2 : 1.0;
  double seconds = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, seconds);
  if (error != std::errc() || stop != end || !(seconds >= 0.1 && seconds <= 3600)) {
    throw InputError("[cli] --interval is \"" + text + "\"; give seconds from 0.1 to 3600");
  }
  return seconds;
}

// The terminal's second screen, without cursor, with keys unbuffered and not echoed. The terminal
// is restored when this object is destroyed.
class Screen {
 public:
  Screen() {
    has_keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    enter();
  }
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Restores the terminal, stops as Ctrl-Z asks, and takes the terminal again when the process
  // resumes.
  void pause() {
    leave();
    ::raise(SIGSTOP);
    enter();
  }

  // Draws each line over the old one, so that nothing flickers.
  void draw(const std::string& text, int64_t rows) const {
    std::string out = "\x1b[H";
    std::istringstream lines(text);
    std::string line;
    for (int64_t row = 0; row < rows && std::getline(lines, line); ++row) {
      out += (row > 0 ? "\r\n" : "") + line + "\x1b[K";
    }
    std::cout << out << "\x1b[J" << std::flush;
  }

  bool has_keys() const { return has_keys_; }

 private:
  void enter() const {
    if (has_keys_) {
      termios plain = before_;
      plain.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C still sends a signal
      ::tcsetattr(STDIN_FILENO, TCSANOW, &plain);
    }
    std::cout << "\x1b[?1049h\x1b[?25l" << std::flush;
  }
  void leave() const {
    std::cout << "\x1b[?25h\x1b[?1049l" << std::flush;
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

  termios before_{};
  bool has_keys_ = false;
};

// Waits until `seconds` are over, a signal comes or a key is pressed. Returns true if that key was
// q, or the input ended. Without keys it only waits.
bool wait_for_q(double seconds, bool has_keys) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (end_requested == 0 && pause_requested == 0 && resized == 0) {
    const double left = std::chrono::duration<double>(until - Clock::now()).count();
    if (left <= 0) return false;
    pollfd keys{has_keys ? STDIN_FILENO : -1, POLLIN, 0};
    const int ready = ::poll(&keys, 1, static_cast<int>(left * 1000) + 1);
    if (ready <= 0) continue;
    char key = 0;
    const auto got = ::read(STDIN_FILENO, &key, 1);
    if (got == 0 || key == 'q' || key == 'Q') return true;
    if (got < 0 && errno != EINTR && errno != EAGAIN) return true;
  }
  return false;
}

void watch_on_terminal(Monitor& monitor, double interval) {
  handle(SIGTSTP, on_pause);
  handle(SIGWINCH, on_resize);
  Screen screen;
  Look look = monitor.look();
  bool is_first = true;
  while (end_requested == 0) {
    const winsize size = terminal_size();
    std::string text = look_text(look, size.ws_col);
    text += std::string("\n") + (screen.has_keys() ? "q ends" : "Ctrl-C ends");
    screen.draw(text, size.ws_row);
    if (wait_for_q(is_first ? std::min(interval, 0.2) : interval, screen.has_keys())) return;
    if (pause_requested != 0) {
      pause_requested = 0;
      screen.pause();
    }
    if (resized == 0) {
      look = monitor.look();
      is_first = false;
    }
    resized = 0;
  }
}

void watch_as_lines(Monitor& monitor, double interval, bool json) {
  monitor.look();
  while (end_requested == 0 && std::cout) {
    wait_for_q(interval, /*has_keys=*/false);
    if (end_requested != 0) return;
    const Look look = monitor.look();
    std::cout << (json ? look_json(look) + "\n" : look_lines(look)) << std::flush;
  }
}

}  // namespace

int monitor(const Arguments& arguments, const Registry& /*registry*/) {
  const double interval = interval_of(arguments.interval, arguments.once);
  const bool is_terminal = stdout_is_terminal();
  Monitor monitor(open_nvml());
  handle(SIGINT, on_end);
  handle(SIGTERM, on_end);
  if (!hang_up_is_ignored()) handle(SIGHUP, on_end);
  if (arguments.once) {
    monitor.look();
    wait_for_q(interval, /*has_keys=*/false);
    const Look look = monitor.look();
    std::cout << (arguments.json ? look_json(look) + "\n"
                                 : look_text(look, is_terminal ? terminal_size().ws_col : 0));
  } else if (is_terminal && !arguments.json) {
    watch_on_terminal(monitor, interval);
  } else {
    watch_as_lines(monitor, interval, arguments.json);
  }
  return 0;
}

}  // namespace tanren::cli
