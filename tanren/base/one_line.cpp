#include "tanren/base/one_line.h"

namespace tanren {

std::string one_line(std::string_view text) {
  constexpr size_t kLongest = 400;
  std::string shown(text.substr(0, text.size() <= kLongest ? text.size() : kLongest / 2));
  if (text.size() > kLongest) {
    shown += "…";
    shown += text.substr(text.size() - kLongest / 2);
  }
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return shown;
}

}  // namespace tanren
