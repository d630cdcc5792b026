// LineReader: the lines of a text file, of standard input or of a pipe, read in parts, so that
// memory does not grow with them. Called by the readers of tables and of rows to predict.
#pragma once

#include "tanren/base/file.h"
#include "tanren/data/text/encoding.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tanren {

// Thrown if a stop is requested during a wait for input.
struct StoppedReading {};

// True for standard input ("-"), a pipe or a terminal. Its reader may have to wait, and can read
// the bytes only once.
bool is_pipe(const std::filesystem::path& source);

class LineReader {
 public:
  // `source` "-" is standard input. InputError if it cannot be opened. Error texts begin with
  // `what` ("data.train"). Setting `stop` ends a wait for standard input or a pipe. No line has
  // more than `longest` bytes.
  LineReader(const std::filesystem::path& source, std::string what, std::string encoding,
             const std::atomic<bool>* stop = nullptr, size_t longest = std::string::npos);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Reads the next line without its line end, as it stands in the file; false at the end. A byte
  // order mark is left out. DataError for a byte 0 or UTF-16 anywhere, and for a line that is too
  // long. StoppedReading if a stop ends the wait.
  bool next(std::string& line);
  // Whether next() returns a line or the end without waiting. For a pipe, the answer is no once
  // nothing has come for 0.1 seconds. Errors as next().
  bool is_ready();
  // The line end of the last line: "\n" or "\r\n"; at the end of the file "" or "\r".
  const std::string& ending() const { return ending_; }
  // Lines handed out so far.
  int64_t number() const { return number_; }
  // "new.csv", or "standard input".
  const std::string& name() const { return name_; }

  // Returns the line as UTF-8. If it is not valid, sets `problem` and returns the line unchanged.
  std::string text(const std::string& line, std::string& problem) const;
  // Turns a record that began in line `first` into UTF-8. DataError naming line and byte of invalid
  // UTF-8.
  void make_text(std::string& record, int64_t first) const;

 private:
  bool has_input();
  bool fill();
  size_t find_end(bool waits);
  size_t read(char* to, size_t most);

  std::string name_, what_, encoding_, ending_;
  std::optional<OpenFile> file_;  // none: a pipe or standard input
  int waited_ = -1;               // the pipe or standard input
  const std::atomic<bool>* stop_;
  size_t longest_;
  TextCheck check_;
  std::string buffer_;
  size_t begin_ = 0;  // of the bytes not returned yet
  bool ended_ = false, past_mark_ = false;
  int64_t number_ = 0;
};

}  // namespace tanren
