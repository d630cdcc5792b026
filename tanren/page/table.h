// A table as text for a terminal and as HTML for a page. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace tanren {

struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // each as long as the head
  size_t texts = 1;                            // number of leading columns with words, not numbers
  std::string note;                            // below the rows; may be empty
  bool remarks = false;                        // the last column holds words too
  std::vector<double> bars;  // one per row, 0 to 1, drawn after its last cell on a page; or empty
};

// The title in capitals, the head and rows in aligned columns, and the note.
std::string text_of(const Table& table);
// A section of a page. Its style is in report_page.h.
std::string html_of(const Table& table);

}  // namespace tanren
