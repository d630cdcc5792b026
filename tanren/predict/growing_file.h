// GrowingFile: a table that is written row by row and can be resumed after an interruption. Until
// it is whole, it is called FILE.partial; FILE.partial.json beside it says how many of its bytes
// count and what it was made from. Invariant: whenever the process ends, the bytes that
// FILE.partial.json counts are whole rows, and FILE itself is whole or absent. A file of that name
// that somebody else has made meanwhile is kept. One process at a time locks it, before it reads
// what an earlier start has left. Called by predict_file, on rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tanren {

// How far a file has come.
struct Progress {
  std::string model, settings;  // hashes of what the rows depend on
  std::string source;           // hash of the rows that are done
  std::string computed;         // computed_in() of their start, without a blank; empty: unknown
  int64_t rows = 0;             // rows of the source that are done
  int64_t broken = 0;           // of these, without a prediction
  int64_t bytes = 0;            // of the file
  int64_t batch = 0;            // samples of a forward
  int64_t written = 0;          // rows of the file, where a sample has several; 0: unknown
};

class GrowingFile {
 public:
  // Opens and locks FILE.partial. ConfigError if `file` exists, or if it was begun from another
  // model or with other settings (`begin.model`, `begin.settings`), unless it is to be `replaced`.
  // InputError if it cannot be written or another process writes it. Does not change rows yet:
  // without open(), it leaves no file that did not exist before.
  GrowingFile(std::filesystem::path file, const Progress& begin, bool replaced);
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  // The files beside `file` that may be there until it is whole.
  static std::vector<std::filesystem::path> parts_of(const std::filesystem::path& file);

  // Where to resume: `begin`, or what an earlier start has left.
  const Progress& progress() const { return saved_; }
  const std::filesystem::path& partial() const { return partial_; }
  const std::filesystem::path& state() const { return state_; }  // says which of its bytes count

  // Call this if the rows that are done are not those of the source. If the file is to be replaced,
  // it begins again from `begin`, and this returns true.
  bool begins_again(const Progress& begin);

  // Cuts the file to the bytes that count, before the first append(). InputError if it cannot be
  // written.
  void open();
  // Adds rows; `after` is the progress with them. The state is saved at most once a second.
  // InputError for a full disk; the rows that counted before still count.
  void append(const std::string& rows, Progress after);
  // Saves all that was appended.
  void save();
  // Call this instead of finish() if rows are left: saves what was appended. If nothing was
  // appended, removes both files.
  void leave();
  // Renames the part to the file. With `turn`, converts the part into the file instead, which is
  // written whole or not at all. InputError if a file of that name has been made meanwhile, unless
  // it is to be replaced; the part then stays, with all its rows.
  using Turn =
      std::function<void(const std::filesystem::path& part, const std::filesystem::path& file)>;
  void finish(const Turn& turn = {});

 private:
  // The open and locked part. If it was empty, it is removed again unless rows go into it.
  struct Part {
    explicit Part(std::filesystem::path file) : path(std::move(file)) {}
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    std::filesystem::path path;
    int descriptor = -1;
    bool is_new = false;
  };

  void hold();
  void refuse_file_that_is_there() const;
  void find_saved();
  void give_name(const std::filesystem::path& whole);
  void write_all(const std::string& rows);
  [[noreturn]] void fail(const std::string& what, int error) const;

  std::filesystem::path file_, partial_, state_;
  Part part_;
  Progress saved_, appended_;
  std::chrono::steady_clock::time_point saved_at_;
  bool replaced_ = false;
};

}  // namespace tanren
