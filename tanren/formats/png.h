// PNG files from pixels, through libspng. Pure; called by sinks and by the command line, off the
// step's thread. Reading PNGs is data/image/png.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tanren {

// A file of 8-bit RGB; `rgb` holds height rows of width × 3 bytes. RunError for sizes that no PNG
// can have, and if memory runs out.
std::string png_of(std::span<const uint8_t> rgb, int64_t width, int64_t height);

}  // namespace tanren
