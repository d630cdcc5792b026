// Reads rows of text with a label from a CSV, TSV or JSON lines file. The whole file is read and
// checked first: a broken row is an error that names its line. Called by the kind text_table.
#pragma once

#include "tanren/config/run_config.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct TextRow {
  int64_t line = 0;  // of the file, from 1, where the row begins
  std::string text;
  std::string pair;   // empty without a second column
  std::string label;  // as in the file; JSON numbers in their shortest form
};

struct TextColumns {
  std::string text, pair, label;  // pair empty: there is none; label empty: labels are not read
};

// .csv (RFC 4180 with any delimiter: a header line, cells in double quotes may hold delimiters,
// quotes and line ends), .tsv (a header line, nothing is quoted), .jsonl or .ndjson (an object a
// line). Uses only the delimiter and the encoding of `options`. DataError naming file, line and
// column: a missing column (with the existing ones), a cell that is empty or not text, an unclosed
// quote, a line that is not JSON, a byte that is invalid in the encoding (encoding.h). Error texts
// begin with `what` ("data.train").
std::vector<TextRow> read_text_rows(const std::filesystem::path& path, const TextColumns& columns,
                                    const std::string& what, const SourceOptions& options = {});

}  // namespace tanren
