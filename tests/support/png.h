// Writes PNG files without a library, for tests of the program on image folders. Torch-free.
#pragma once

#include <cstdint>
#include <string>

namespace tanren::testing {

// A valid PNG of `size` × `size` RGB pixels of one colour.
inline std::string make_png(uint32_t size, uint8_t red, uint8_t green, uint8_t blue) {
  const auto big_endian = [](uint32_t number) {
    std::string bytes;
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
    return bytes;
  };
  const auto chunk = [&](const std::string& type, const std::string& data) {
    uint32_t crc = 0xffffffff;
    for (const char c : type + data) {
      crc ^= static_cast<uint8_t>(c);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1) * 0xedb88320;
    }
    return big_endian(static_cast<uint32_t>(data.size())) + type + data + big_endian(~crc);
  };
  std::string rows;
  for (uint32_t y = 0; y < size; ++y) {
    rows += '\0';  // no filter
    for (uint32_t x = 0; x < size; ++x) {
      rows += {static_cast<char>(red), static_cast<char>(green), static_cast<char>(blue)};
    }
  }
  uint32_t a = 1, b = 0;  // Adler-32
  for (const char c : rows) {
    a = (a + static_cast<uint8_t>(c)) % 65521;
    b = (b + a) % 65521;
  }
  // One stored block: at most 65535 bytes.
  const auto length = static_cast<uint16_t>(rows.size());
  std::string data = {'\x78', '\x01', '\x01'};
  for (const uint16_t half : {length, static_cast<uint16_t>(~length)}) {
    data += {static_cast<char>(half & 0xff), static_cast<char>(half >> 8)};
  }
  data += rows + big_endian(b << 16 | a);
  const std::string header =
      big_endian(size) + big_endian(size) + std::string("\x08\x02\x00\x00\x00", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", data) + chunk("IEND", "");
}

}  // namespace tanren::testing
