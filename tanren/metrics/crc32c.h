// CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected), as TFRecord files carry it. A table of 1
// KiB is fast enough for a log; pure functions.
#pragma once

#include <cstdint>
#include <string_view>

namespace tanren {

// The checksum of the bytes (RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);
// The same, rotated and with a constant added. TFRecord stores only these, so that checksums of
// data that contain checksums stay reliable.
uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tanren
