// A number with its noun, for messages: "1 row", "8 rows". Torch-free.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace tanren {

// `noun`: the singular of one whose plural ends in s.
template <std::integral Number>
std::string counted(Number count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace tanren
