// Journal: a file of JSON lines that only grows. Each line ends with a sum over itself and all
// lines before it, so that a line that was changed, dropped or moved is found. One process writes
// it, and holds a lock. A last line without its line end, which a crash leaves, is cut. Called by
// Study.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tanren {

class Journal {
 public:
  // Keeps nothing: a study in memory.
  Journal() = default;
  // Opens or makes the file and locks it. InputError if another process holds it, if it cannot be
  // opened, or if a line's sum is wrong, with the line's number.
  explicit Journal(std::filesystem::path file);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&& other) noexcept;

  // The lines that were there, without their sums: JSON objects. Empties the list.
  std::vector<std::string> take_lines();

  // Adds a JSON object ("{…}", not empty) as one line. `sync`: the line is on the disk before
  // append returns. Otherwise only the operating system has it, so it survives the end of the
  // process but not of the machine. RunError if it cannot be written; the file is then unchanged.
  void append(std::string_view object, bool sync);

  // For a forked child process: closes the file without writing or unlocking.
  void leave();

  const std::filesystem::path& path() const { return path_; }

 private:
  void close();
  void read_lines();

  std::filesystem::path path_;  // empty: in memory
  int descriptor_ = -1;
  int64_t size_ = 0;  // bytes that count
  uint64_t sum_ = 0;  // over all lines
  std::vector<std::string> lines_;
};

// The checksum after one more line, if `sum` is the one before it. It is FNV-1a of 64 bits, because
// that is easy to write in any language.
uint64_t next_sum(uint64_t sum, std::string_view object);

// The lines of a journal that another process may be writing, checked like those of Journal. Takes
// no lock and changes nothing.
std::vector<std::string> read_journal(const std::filesystem::path& file);

}  // namespace tanren
