// LineReader: the lines of a text file or of standard input, read in parts, so that memory does not
// grow with the file. Called by the readers of rows.
#pragma once

#include "tanren/base/file.h"
#include "tanren/data/text/encoding.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

class LineReader {
 public:
  // `source` "-" is standard input. InputError if it cannot be opened.
  LineReader(const std::filesystem::path& source, std::string encoding);

  // The next line without its end, as it stands in the file; false at the end. A byte order mark is
  // left out. DataError for a byte 0 and for UTF-16, wherever they are, and for a line of more than
  // 64 MiB.
  bool next(std::string& line);
  // Lines handed out so far.
  int64_t number() const { return number_; }
  // "new.csv", or "standard input".
  const std::string& name() const { return name_; }

  // The line as UTF-8. `problem` says what is wrong with it; it is then returned as it stands.
  std::string text(const std::string& line, std::string& problem) const;

 private:
  bool fill();

  std::string name_, encoding_;
  OpenFile file_;
  TextCheck check_;
  std::string buffer_;
  size_t begin_ = 0;  // of what is not handed out
  bool ended_ = false;
  int64_t number_ = 0;
};

// Splits one record of a CSV (`separator` ',', RFC 4180) or a TSV ('\t', nothing is quoted) into
// its cells. False if a quote is still open at its end: the record goes on in the next line.
// `problem` is set if a cell goes on after its closing quote.
bool split_record(const std::string& record, char separator, std::vector<std::string>& cells,
                  std::string& problem);

}  // namespace tanren
