// A table as a terminal and as a page show it. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace tanren {

struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  // each as long as the head
  size_t texts = 1;                            // leading columns that are words, not numbers
  std::string note;                            // below; may be empty
  bool remarks = false;                        // the last column is words too
};

// The title in capitals, the head and rows in aligned columns, and the note.
std::string text_of(const Table& table);
// A section of a page: report_page.h has its style.
std::string html_of(const Table& table);

}  // namespace tanren
