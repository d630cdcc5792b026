#include "tanren/metrics/jsonl_sink.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/metrics/json_line.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tanren {

namespace {

constexpr size_t kRingSize = 256;
constexpr auto kRhythm = std::chrono::milliseconds(100);  // the writer looks so often unasked

std::string failure(std::string_view what, const std::filesystem::path& file, int code) {
  return "[metrics] cannot " + std::string(what) + " " + file.string() + ": " +
         std::strerror(code) +
         "; free the disk or correct its rights, then go on with the run folder";
}

// Waking a thread costs more than a small step may: the writer wakes by the clock, and is called
// only by flush, by a half-full ring and at the end.
class JsonlSink final : public Sink {
 public:
  explicit JsonlSink(const std::filesystem::path& file) : file_(file), ring_(kRingSize) {
    truncate_log(file, std::numeric_limits<int64_t>::max());
    descriptor_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor_ < 0) throw RunError(failure("open", file, errno));
    writer_ = std::thread([this] { write_on(); });
  }

  ~JsonlSink() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    called_.notify_one();
    writer_.join();
    ::close(descriptor_);
    if (!error_.empty() && !told_) log(error_);
  }
  JsonlSink(const JsonlSink&) = delete;
  JsonlSink& operator=(const JsonlSink&) = delete;

  void step(const StepReport& report) override {
    Slot& slot = free_slot();
    slot.is_step = true;
    slot.step = report;  // reuses the memory of the slot's strings and vectors
    publish();
  }

  void evaluation(const EvaluationReport& report) override {
    Slot& slot = free_slot();
    slot.is_step = false;
    slot.evaluation = report;
    publish();
  }

  void flush() override {
    std::unique_lock lock(mutex_);
    flush_asked_ = true;
    called_.notify_one();
    answered_.wait(lock, [this] { return !flush_asked_; });
    throw_error();
  }

 private:
  struct Slot {
    bool is_step = true;
    StepReport step;
    EvaluationReport evaluation;
  };

  // The slot at the head belongs to the caller until publish().
  Slot& free_slot() {
    std::unique_lock lock(mutex_);
    if (head_ - tail_ == kRingSize) {
      called_.notify_one();
      answered_.wait(lock, [this] { return head_ - tail_ < kRingSize; });
    }
    throw_error();
    return ring_[head_ % kRingSize];
  }

  void publish() {
    const std::lock_guard lock(mutex_);
    ++head_;
    if (head_ - tail_ == kRingSize / 2) called_.notify_one();
  }

  void throw_error() {
    if (error_.empty()) return;
    told_ = true;
    throw RunError(error_);
  }

  // The writer: slots from tail to head are its own, so it formats them without the lock.
  void write_on() {
    std::string text;
    std::unique_lock lock(mutex_);
    while (true) {
      called_.wait_for(lock, kRhythm, [this] {
        return ending_ || flush_asked_ || head_ - tail_ >= kRingSize / 2;
      });
      const uint64_t end = head_;
      const bool sync = flush_asked_;
      const bool broken = !error_.empty();
      const bool last = ending_;
      lock.unlock();
      std::string error;
      if (!broken) error = write_slots(text, end, sync);
      lock.lock();
      if (!error.empty()) error_ = error;
      tail_ = end;
      if (sync) flush_asked_ = false;
      answered_.notify_all();
      if (last) return;
    }
  }

  // Empty, or what went wrong.
  std::string write_slots(std::string& text, uint64_t end, bool sync) {
    text.clear();
    for (uint64_t i = tail_; i < end; ++i) {
      const Slot& slot = ring_[i % kRingSize];
      text += slot.is_step ? json_line(slot.step) : json_line(slot.evaluation);
      text += '\n';
    }
    size_t written = 0;
    while (written < text.size()) {
      const auto count = ::write(descriptor_, text.data() + written, text.size() - written);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int code = count < 0 ? errno : ENOSPC;
        take_back(text, written);
        return failure("write", file_, code);
      }
      written += static_cast<size_t>(count);
    }
    if (sync && ::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) {
      return failure("flush", file_, errno);
    }
    return {};
  }

  // Removes the last, torn line of what was written.
  void take_back(const std::string& text, size_t written) {
    const auto line_feed = written == 0 ? std::string::npos : text.rfind('\n', written - 1);
    const size_t torn = line_feed == std::string::npos ? written : written - line_feed - 1;
    struct stat facts {};
    if (torn > 0 && ::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode)) {
      [[maybe_unused]] const int result =
          ::ftruncate(descriptor_, facts.st_size - static_cast<off_t>(torn));
    }
  }

  std::filesystem::path file_;
  int descriptor_ = -1;
  std::mutex mutex_;
  std::condition_variable called_;    // to the writer
  std::condition_variable answered_;  // from the writer
  std::vector<Slot> ring_;
  uint64_t head_ = 0;  // reports told
  uint64_t tail_ = 0;  // reports written; changed by the writer only
  bool flush_asked_ = false;
  bool ending_ = false;
  bool told_ = false;  // error_ was thrown
  std::string error_;
  std::thread writer_;
};

// The attempt that a line tells of; 0 for an evaluation or anything else.
int64_t attempt_of(std::string_view line) {
  constexpr std::string_view kStart = "{\"attempt\":";
  if (line.substr(0, kStart.size()) != kStart) return 0;
  int64_t attempt = 0;
  std::from_chars(line.data() + kStart.size(), line.data() + line.size(), attempt);
  return attempt;
}

// Whether the file's last byte is missing its line feed (pipes and devices never are torn).
bool is_torn(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

}  // namespace

std::unique_ptr<Sink> make_jsonl_sink(const std::filesystem::path& file) {
  return std::make_unique<JsonlSink>(file);
}

void truncate_log(const std::filesystem::path& file, int64_t attempt) {
  std::error_code missing;
  if (!std::filesystem::is_regular_file(file, missing)) return;
  const bool all = attempt == std::numeric_limits<int64_t>::max();
  if (all && !is_torn(file)) return;
  std::ifstream in(file, std::ios::binary);
  if (!in) throw RunError(failure("read", file, errno));
  int64_t keep = 0;
  std::string line;
  while (std::getline(in, line)) {
    if (in.eof() || attempt_of(line) > attempt) break;  // eof: the line has no line feed
    keep += static_cast<int64_t>(line.size()) + 1;
  }
  in.close();
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) throw RunError(failure("cut", file, errno));
  const bool cut = ::ftruncate(descriptor, keep) == 0 && ::fsync(descriptor) == 0;
  const int code = errno;
  ::close(descriptor);
  if (!cut) throw RunError(failure("cut", file, code));
}

}  // namespace tanren
