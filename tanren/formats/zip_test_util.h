// Builds zip archives with the layout of torch.save. Included by tests and fuzz targets only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tanren::testing {

// A stored zip archive of the entries. It has no checksums, because the reader ignores them.
inline std::string zip_of(const std::vector<std::pair<std::string, std::string_view>>& entries) {
  std::string file, directory;
  const auto put = [](std::string& to, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) to += static_cast<char>((value >> (8 * i)) & 0xff);
  };
  const auto put_facts = [&](std::string& to, const std::string& name, std::string_view bytes) {
    put(to, 0, 4);  // flags, method
    put(to, 0, 8);  // time, checksum
    put(to, bytes.size(), 4);
    put(to, bytes.size(), 4);
    put(to, name.size(), 2);
    put(to, 0, 2);  // extra field
  };
  for (const auto& [name, bytes] : entries) {
    const size_t place = file.size();
    file += "PK\x03\x04";
    put(file, 20, 2);
    put_facts(file, name, bytes);
    file += name;
    file += bytes;
    directory += "PK\x01\x02";
    put(directory, 20, 2);
    put(directory, 20, 2);
    put_facts(directory, name, bytes);
    directory.append(10, '\0');  // comment, disk, attributes
    put(directory, place, 4);
    directory += name;
  }
  const size_t place = file.size();
  file += directory + "PK\x05\x06";
  put(file, 0, 4);
  put(file, entries.size(), 2);
  put(file, entries.size(), 2);
  put(file, directory.size(), 4);
  put(file, place, 4);
  put(file, 0, 2);
  return file;
}

}  // namespace tanren::testing
