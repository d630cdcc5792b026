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

// Thrown where a source is waited for and a stop is asked for meanwhile.
struct StoppedReading {};

// Standard input ("-"), a pipe or a terminal: it may have to be waited for, and gives its bytes
// once.
bool is_pipe(const std::filesystem::path& source);

class LineReader {
 public:
  // `source` "-" is standard input. InputError if it cannot be opened. Error texts begin with
  // `what` ("data.train"). Where standard input or a pipe is waited for, `stop` ends the wait. No
  // line has more than `longest` bytes.
  LineReader(const std::filesystem::path& source, std::string what, std::string encoding,
             const std::atomic<bool>* stop = nullptr, size_t longest = std::string::npos);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end, as it stands in the file; false at the end. A byte order mark is
  // left out. DataError for a byte 0 and for UTF-16, wherever they are, and for a line that is too
  // long; StoppedReading if a stop ends the wait.
  bool next(std::string& line);
  // Whether next() gives a line, or the end, without a wait; of a pipe, after 0.1 seconds at most
  // in which nothing comes. Errors as next().
  bool is_ready();
  // What ended the line that was handed out last: "\n", "\r\n", or nothing at the file's end.
  const std::string& ending() const { return ending_; }
  // Lines handed out so far.
  int64_t number() const { return number_; }
  // "new.csv", or "standard input".
  const std::string& name() const { return name_; }

  // The line as UTF-8. `problem` says what is wrong with it; it is then returned as it stands.
  std::string text(const std::string& line, std::string& problem) const;
  // Turns a record that began in line `first` into UTF-8. DataError naming line and byte of what is
  // none.
  void make_text(std::string& record, int64_t first) const;

 private:
  bool has_input();
  bool fill();
  size_t find_end(bool waits);
  size_t read(char* to, size_t most);

  std::string name_, what_, encoding_, ending_;
  std::optional<OpenFile> file_;  // none: what is waited for
  int waited_ = -1;               // the descriptor that is waited for
  const std::atomic<bool>* stop_;
  size_t longest_;
  TextCheck check_;
  std::string buffer_;
  size_t begin_ = 0;  // of what is not handed out
  bool ended_ = false, past_mark_ = false;
  int64_t number_ = 0;
};

}  // namespace tanren
