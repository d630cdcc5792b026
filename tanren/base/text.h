// Small text helpers: numbers as people read them. Torch-free; std::format is not in g++ 12.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

// Shortest decimal that reads back as the same double ("0.001", "1e-08", "3").
std::string to_text(double value);
std::string to_text(int64_t value);
// "1.5 GiB", "812 KiB"
std::string bytes_text(double bytes);
// "1h02m", "3m05s", "4.2s"
std::string seconds_text(double seconds);

}  // namespace tanren
