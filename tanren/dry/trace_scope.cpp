#include "tanren/dry/trace_scope.h"

#include <c10/core/Allocator.h>

#include <mutex>
#include <unordered_map>

namespace tanren {

class TraceScope::Recorder final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* data, int64_t bytes, size_t, size_t, c10::Device) override {
    const std::lock_guard lock(mutex_);
    if (bytes > 0) {
      const MemoryTag& tag = memory_tag();
      const MemoryEvent made{bytes, num_tensors_++, tag.kind, tag.block};
      alive_[data] = made;
      trace_.push_back(made);
      return;
    }
    const auto found = alive_.find(data);
    if (found == alive_.end()) return;
    trace_.push_back(found->second);
    trace_.back().bytes = -trace_.back().bytes;
    alive_.erase(found);
  }
  bool memoryProfilingEnabled() const override { return true; }
  MemoryTrace trace() const {
    const std::lock_guard lock(mutex_);
    return trace_;
  }
  size_t size() const {
    const std::lock_guard lock(mutex_);
    return trace_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<void*, MemoryEvent> alive_;
  MemoryTrace trace_;
  uint32_t num_tensors_ = 0;
};

TraceScope::TraceScope()
    : recorder_(std::make_shared<Recorder>()),
      guard_(c10::DebugInfoKind::PROFILER_STATE, recorder_) {}
TraceScope::~TraceScope() = default;

MemoryTrace TraceScope::trace() const { return recorder_->trace(); }
size_t TraceScope::size() const { return recorder_->size(); }

}  // namespace tanren
