// Numbers as the anatomy's texts show them. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace tanren {

std::string mebibytes_text(int64_t bytes);    // "1343.0 MiB"
std::string signed_mebibytes(int64_t bytes);  // "−12.5 MiB", "+3.0 MiB"
std::string time_text(double seconds);        // "1.23 s", "12.3 ms", "45.6 µs"
std::string percent_text(double share);       // "41.2 %"
std::string signed_percent(double share);     // "−41 %", "+3 %"
std::string scaled_text(double value);        // of 1000: "1.23 T", "45.6 G", "7.89 M"; "-" for 0

}  // namespace tanren
