// GrowingFile: a table that is written row by row and can go on after an interruption. Until it is
// whole it is called FILE.partial, and FILE.partial.json beside it says how much of it counts and
// what it was made from. Invariant: whatever moment the process ends at, the bytes that
// FILE.partial.json counts are whole rows; FILE itself is whole or absent, and a file of that name
// that somebody else has made meanwhile is kept. One process at a time holds it, from before it
// reads what an earlier start has left. Called by predict_file, on rank 0.
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
  std::string source;           // of the rows that are done
  std::string computed;         // computed_in() of their start, without a blank; empty: unknown
  int64_t rows = 0;             // of the source that are done
  int64_t broken = 0;           // of these, without a prediction
  int64_t bytes = 0;            // of the file
  int64_t batch = 0;            // samples of a forward
  int64_t written = 0;          // rows of the file, where a sample has several; 0: unknown
};

class GrowingFile {
 public:
  // Holds the part of `file`. ConfigError if `file` is there, or if it was begun from another model
  // or with other settings (`begin.model`, `begin.settings`), unless it is to be `replaced`;
  // InputError if it cannot be written or another process writes it. Changes no rows yet: without
  // open() no file is left that was not there.
  GrowingFile(std::filesystem::path file, const Progress& begin, bool replaced);
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  // The files beside `file` that may be there until it is whole.
  static std::vector<std::filesystem::path> parts_of(const std::filesystem::path& file);

  // Where to go on: `begin`, or what an earlier start has left.
  const Progress& progress() const { return saved_; }
  const std::filesystem::path& partial() const { return partial_; }
  const std::filesystem::path& state() const { return state_; }  // says what counts of it

  // The rows that are done are not those of the source. Returns whether the file may begin again.
  bool begins_again(const Progress& begin);

  // Cuts the file to the bytes that count, before the first append(). InputError if it cannot be
  // written.
  void open();
  // Adds rows; `after`: the progress with them. What counts is saved at most once a second.
  // InputError for a full disk; what counted before still does.
  void append(const std::string& rows, Progress after);
  // Saves all that was appended.
  void save();
  // Before the end of the rows: saves what was appended; if that is nothing, nothing is left.
  void leave();
  // Gives the file its name; or, with `turn`, turns the part into the file, which is then written
  // whole or not at all. InputError if a file of that name has come meanwhile, unless it is to be
  // replaced: the part then stays, with all its rows.
  using Turn =
      std::function<void(const std::filesystem::path& part, const std::filesystem::path& file)>;
  void finish(const Turn& turn = {});

 private:
  // The open and locked part. One that this process made is removed again unless rows go into it.
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
