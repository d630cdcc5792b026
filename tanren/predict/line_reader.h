// LineReader: the lines of a text file, of standard input or of a pipe, read in parts, so that
// memory does not grow with them. Called by the readers of rows.
#pragma once

#include "tanren/base/file.h"
#include "tanren/data/text/encoding.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tanren {

class LineReader {
 public:
  // `source` "-" is standard input. InputError if it cannot be opened. Where standard input or a
  // pipe is waited for, `stop` ends the wait.
  LineReader(const std::filesystem::path& source, std::string encoding,
             const std::atomic<bool>* stop = nullptr);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line without its end, as it stands in the file; false at the end. A byte order mark is
  // left out. DataError for a byte 0 and for UTF-16, wherever they are, and for a line of more than
  // 64 MiB; StoppedReading if a stop ends the wait.
  bool next(std::string& line);
  // What ended the line that was handed out last: "\n", "\r\n", or nothing at the file's end.
  const std::string& ending() const { return ending_; }
  // Lines handed out so far.
  int64_t number() const { return number_; }
  // "new.csv", or "standard input".
  const std::string& name() const { return name_; }

  // The line as UTF-8. `problem` says what is wrong with it; it is then returned as it stands.
  std::string text(const std::string& line, std::string& problem) const;

 private:
  bool fill();
  size_t read(char* to, size_t most);

  std::string name_, encoding_, ending_;
  std::optional<OpenFile> file_;  // none: what is waited for
  int waited_ = -1;               // the descriptor that is waited for
  const std::atomic<bool>* stop_;
  TextCheck check_;
  std::string buffer_;
  size_t begin_ = 0;  // of what is not handed out
  bool ended_ = false, past_mark_ = false;
  int64_t number_ = 0;
};

// Whether a quote is open at the end of a record of a CSV, so that it goes on in the next line.
// Each byte of a record that grows by lines is looked at once.
class OpenQuote {
 public:
  bool at_end_of(const std::string& record);

 private:
  enum class State { before, plain, quoted, closed };
  State state_ = State::before;
  size_t at_ = 0;
};

// Splits one record of a CSV (`separator` ',', RFC 4180) or a TSV ('\t', nothing is quoted) into
// its cells. False if a quote is still open at its end: the record goes on in the next line.
// `problem` is set if a cell goes on after its closing quote.
bool split_record(const std::string& record, char separator, std::vector<std::string>& cells,
                  std::string& problem);

}  // namespace tanren
