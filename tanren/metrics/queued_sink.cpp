#include "tanren/metrics/queued_sink.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace tanren {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

constexpr size_t kRingSize = 256;
constexpr auto kRhythm = std::chrono::milliseconds(100);  // between wake-ups of the writer

// The writer wakes by the clock, because waking a thread may cost more than a small step. It is
// woken earlier only by flush, by a half-full ring and at the end.
class QueuedSink final : public Sink {
 public:
  QueuedSink(std::unique_ptr<AppendFile> file, std::unique_ptr<ReportFormat> format,
             const QueuedOptions& options)
      : file_(std::move(file)),
        format_(std::move(format)),
        takes_images_(format_->takes_images()),
        options_(options),
        ring_(kRingSize) {
    writer_ = std::thread([this] { write_on(); });
  }

  ~QueuedSink() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    called_.notify_one();
    writer_.join();
    if (!failure_.empty() && options_.is_record && !told_) {
      log("[metrics] the end of " + file_->path().string() + " is lost: " + failure_);
    }
  }
  QueuedSink(const QueuedSink&) = delete;
  QueuedSink& operator=(const QueuedSink&) = delete;

  void step(const StepReport& report) override {
    Slot& slot = free_slot();
    slot.kind = Kind::step;
    slot.step = report;  // reuses the memory of the slot's strings and vectors
    publish(slot);
  }

  void evaluation(const EvaluationReport& report) override {
    Slot& slot = free_slot();
    slot.kind = Kind::evaluation;
    slot.evaluation = report;
    publish(slot);
  }

  void images(const ImageReport& report) override {
    if (!takes_images_) return;
    Slot& slot = free_slot();
    slot.kind = Kind::images;
    slot.images = report;
    publish(slot);
  }

  void flush() override {
    std::unique_lock lock(mutex_);
    flush_asked_ = true;
    called_.notify_one();
    answered_.wait(lock, [this] { return !flush_asked_; });
    if (options_.is_record && !failure_.empty()) throw_failure();
  }

 private:
  enum class Kind { step, evaluation, images };
  struct Slot {
    Kind kind = Kind::step;
    double wall_time = 0;
    StepReport step;
    EvaluationReport evaluation;
    ImageReport images;  // empty once they are written: no slot keeps the memory of pictures
  };

  // The slot at the head belongs to the caller until publish().
  Slot& free_slot() {
    std::unique_lock lock(mutex_);
    if (head_ - tail_ == kRingSize) {
      called_.notify_one();
      answered_.wait(lock, [this] { return head_ - tail_ < kRingSize; });
    }
    if (overfull_) throw_failure();
    return ring_[head_ % kRingSize];
  }

  void publish(Slot& slot) {
    slot.wall_time = unix_seconds();
    const std::lock_guard lock(mutex_);
    ++head_;
    if (head_ - tail_ == kRingSize / 2) called_.notify_one();
  }

  [[noreturn]] void throw_failure() {
    told_ = true;
    throw RecordError("[metrics] cannot write " + file_->path().string() + ": " + failure_ +
                      "; free the disk or correct its rights, then resume the run folder");
  }

  // The writer's loop. Slots from tail to head are its own, so it formats them without the lock.
  void write_on() {
    std::unique_lock lock(mutex_);
    while (true) {
      called_.wait_for(lock, kRhythm, [this] {
        return ending_ || flush_asked_ || head_ - tail_ >= kRingSize / 2;
      });
      const uint64_t end = head_;
      const bool sync = flush_asked_ && options_.is_record;
      const bool answering = flush_asked_;
      const bool last = ending_;
      lock.unlock();
      format_slots(end);
      const int code = file_->write(sync);
      tell(code);
      lock.lock();
      failure_ = code == 0 ? "" : std::strerror(code);
      overfull_ = options_.is_record && file_->bytes_waiting() > options_.max_waiting;
      tail_ = end;
      if (answering) flush_asked_ = false;
      answered_.notify_all();
      if (last) return;
    }
  }

  void format_slots(uint64_t end) {
    for (uint64_t i = tail_; i < end; ++i) {
      Slot& slot = ring_[i % kRingSize];
      switch (slot.kind) {
        case Kind::step: format_->append(slot.step, slot.wall_time, file_->buffer()); break;
        case Kind::evaluation:
          format_->append(slot.evaluation, slot.wall_time, file_->buffer());
          break;
        case Kind::images:
          format_->append(slot.images, slot.wall_time, file_->buffer());
          slot.images = {};
          break;
      }
      file_->end_item();
    }
  }

  // Logs one warning when writing begins to fail and one line when it works again; a view logs only
  // one warning in its life.
  void tell(int code) {
    const std::string name = file_->path().string();
    if (code != 0 && !options_.is_record && file_->bytes_waiting() > options_.max_waiting) {
      file_->drop();
    }
    if (code != 0 && !troubled_ && (options_.is_record || !warned_)) {
      log("[metrics] cannot write " + name + ": " + std::strerror(code) +
          (options_.is_record ? "; the run goes on, its lines wait in memory until the disk is free"
                              : "; the run goes on without it until the disk is free"));
      warned_ = true;
    } else if (code == 0 && troubled_ && options_.is_record) {
      log("[metrics] " + name + " is written again; nothing is missing");
    }
    troubled_ = code != 0;
  }

  std::unique_ptr<AppendFile> file_;  // the writer's, as are the next three lines
  std::unique_ptr<ReportFormat> format_;
  const bool takes_images_;
  bool troubled_ = false, warned_ = false;
  QueuedOptions options_;
  std::mutex mutex_;
  std::condition_variable called_;    // to the writer
  std::condition_variable answered_;  // from the writer
  std::vector<Slot> ring_;
  uint64_t head_ = 0;  // reports received
  uint64_t tail_ = 0;  // reports taken; changed by the writer only
  bool flush_asked_ = false;
  bool ending_ = false;
  bool overfull_ = false;
  bool told_ = false;    // failure_ was thrown
  std::string failure_;  // why the last write failed; empty if it did not
  std::thread writer_;
};

}  // namespace

std::unique_ptr<Sink> make_queued_sink(std::unique_ptr<AppendFile> file,
                                       std::unique_ptr<ReportFormat> format,
                                       const QueuedOptions& options) {
  return std::make_unique<QueuedSink>(std::move(file), std::move(format), options);
}

}  // namespace tanren
