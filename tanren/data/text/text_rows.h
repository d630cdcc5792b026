// Rows of text with a label, out of a CSV, TSV or JSON lines file. The whole file is read and checked
// first: a broken row is an error that names its line. Called by the kind text_table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tanren {

struct TextRow {
  int64_t line = 0;  // of the file, from 1, where the row begins
  std::string text;
  std::string pair;   // empty without a second column
  std::string label;  // as it stands there; numbers of JSON in their shortest form
};

struct TextColumns {
  std::string text, pair, label;  // pair empty: there is none; label empty: labels are not read
};

// .csv (RFC 4180: a header line, cells in double quotes may hold commas, quotes and line ends), .tsv (a
// header line, nothing is quoted), .jsonl or .ndjson (an object a line). DataError naming file, line
// and column: a column that is not there (with those that are), a cell that is empty or no text, a
// quote that nothing closes, a line that is no JSON, a byte that is none of `encoding` (encoding.h).
// `what` ("data.train") begins the errors.
std::vector<TextRow> read_text_rows(const std::filesystem::path& path, const TextColumns& columns,
                                    const std::string& what, const std::string& encoding = "utf-8");

}  // namespace tanren
