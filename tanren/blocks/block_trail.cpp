#include "tanren/blocks/block_trail.h"

#include "tanren/base/memory_tag.h"

#include <ATen/SequenceNumber.h>

#include <deque>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace tanren {

namespace {

constexpr size_t kMostNames = 4095;  // bounds the memory of a program that generates names

struct Names {
  std::mutex mutex;
  std::deque<std::string> names;  // addresses stay
  std::unordered_map<std::string_view, uint16_t> ids;
};

// Never destroyed, because it is also read at exit.
Names& names() {
  static Names* const all = new Names;
  return *all;
}

}  // namespace

uint16_t block_id(std::string_view name) {
  // A cache without a lock: usually one thread asks for the same names again and again.
  thread_local std::unordered_map<std::string, uint16_t> known;
  thread_local std::string key;
  key.assign(name);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  auto found = all.ids.find(name);
  if (found == all.ids.end()) {
    if (all.names.size() >= kMostNames) return 0;
    all.names.emplace_back(name);
    found = all.ids.emplace(all.names.back(), static_cast<uint16_t>(all.names.size())).first;
  }
  known.emplace(key, found->second);
  return found->second;
}

std::string block_name(uint16_t id) {
  Names& all = names();
  const std::lock_guard lock(all.mutex);
  return id == 0 || id > all.names.size() ? "" : all.names[id - 1];
}

uint16_t BlockTrail::block_of(uint64_t sequence_number) const {
  // Inner blocks end before outer ones, so the first passage that holds the number is the
  // innermost.
  for (const BlockPassage& passage : passages) {
    if (sequence_number >= passage.first && sequence_number < passage.last) return passage.id;
  }
  return 0;
}

BlockTrail& block_trail() {
  thread_local BlockTrail trail;
  return trail;
}

BlockTrailScope::BlockTrailScope()
    : kept_(nullptr),
      outer_(std::exchange(block_trail().passages, {})),
      outer_recording_(std::exchange(block_trail().recording, true)) {
  block_trail().failed = 0;
}

BlockTrailScope::BlockTrailScope(BlockPassages& passages) : BlockTrailScope() {
  kept_ = &passages;
  block_trail().passages.swap(passages);
}

BlockTrailScope::~BlockTrailScope() {
  BlockTrail& trail = block_trail();
  if (kept_ != nullptr) kept_->swap(trail.passages);
  trail.passages = std::move(outer_);
  trail.recording = outer_recording_;
}

void BlockScope::enter(std::string_view name) {
  id_ = block_id(name);
  outer_ = memory_tag().block;
  memory_tag().block = id_;
  exceptions_ = std::uncaught_exceptions();
  first_ = at::sequence_number::peek();
}

void BlockScope::leave() {
  memory_tag().block = outer_;
  BlockTrail& trail = block_trail();
  if (std::uncaught_exceptions() > exceptions_) {
    if (trail.failed == 0) trail.failed = id_;
    return;
  }
  trail.passages.push_back({id_, first_, at::sequence_number::peek(), can_recompute_});
}

}  // namespace tanren
