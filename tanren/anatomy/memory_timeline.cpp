#include "tanren/anatomy/memory_timeline.h"

#include "tanren/blocks/block_trail.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tanren {

namespace {

using OwnerKey = std::pair<MemoryKind, uint16_t>;

// From the bottom: longest-lived first. `temporaries` come and go on top.
constexpr std::array<MemoryKind, kNumMemoryKinds> kOrder = {
    MemoryKind::workspaces, MemoryKind::weights,     MemoryKind::gradients,  MemoryKind::optimizer,
    MemoryKind::averages,   MemoryKind::other,       MemoryKind::key_values, MemoryKind::casts,
    MemoryKind::batches,    MemoryKind::activations, MemoryKind::temporaries};

size_t rank(MemoryKind kind) {
  return static_cast<size_t>(std::find(kOrder.begin(), kOrder.end(), kind) - kOrder.begin());
}

// Index of the pass that contains the event.
size_t pass_of(const std::vector<PassMark>& passes, size_t event) {
  size_t i = 0;
  while (i + 1 < passes.size() && passes[i + 1].event <= event) ++i;
  return i;
}

// The kinds of short-lived tensors made in the step, by the passes that made and freed them.
std::map<uint32_t, MemoryKind> kinds_by_lifetime(const MemoryTrace& trace, size_t begin,
                                                 const std::vector<PassMark>& passes) {
  std::map<uint32_t, MemoryKind> kinds;
  std::map<uint32_t, size_t> made_in;
  for (size_t i = begin; i < trace.size(); ++i) {
    const MemoryEvent& event = trace[i];
    const bool short_lived =
        event.kind == MemoryKind::activations || event.kind == MemoryKind::temporaries;
    if (!short_lived || passes.empty()) continue;
    const size_t pass = pass_of(passes, i);
    if (event.bytes > 0) {
      made_in[event.tensor] = pass;
      kinds[event.tensor] =
          passes[pass].pass == Pass::forward ? MemoryKind::activations : MemoryKind::temporaries;
    } else if (const auto made = made_in.find(event.tensor);
               made != made_in.end() && made->second == pass) {
      kinds[event.tensor] = MemoryKind::temporaries;
    }
  }
  return kinds;
}

// Live bytes by owner, updated event by event.
class Ledger {
 public:
  explicit Ledger(std::map<uint32_t, MemoryKind> kinds) : kinds_(std::move(kinds)) {}

  void add(const MemoryEvent& event) {
    live_[key(event)] += event.bytes;
    tagged_.at(static_cast<size_t>(event.kind)) += event.bytes;
    total_ += event.bytes;
  }
  int64_t total() const { return total_; }
  const std::map<OwnerKey, int64_t>& live() const { return live_; }
  const std::array<int64_t, kNumMemoryKinds>& tagged() const { return tagged_; }

 private:
  OwnerKey key(const MemoryEvent& event) const {
    const auto found = kinds_.find(event.tensor);
    return {found == kinds_.end() ? event.kind : found->second, event.block};
  }

  std::map<uint32_t, MemoryKind> kinds_;
  std::map<OwnerKey, int64_t> live_;
  std::array<int64_t, kNumMemoryKinds> tagged_ = {};
  int64_t total_ = 0;
};

// The owner's row of the plot; created if it is new.
MemoryOwner& owner_of(MemoryTimeline& timeline, std::map<OwnerKey, size_t>& rows,
                      const OwnerKey& key) {
  const auto [found, is_new] = rows.emplace(key, timeline.owners.size());
  if (is_new) timeline.owners.push_back({key.first, block_name(key.second), {}, 0});
  return timeline.owners[found->second];
}

void sort_owners(std::vector<MemoryOwner>& owners) {
  std::erase_if(owners, [](const MemoryOwner& owner) {
    return std::all_of(owner.bytes.begin(), owner.bytes.end(), [](int64_t b) { return b == 0; });
  });
  std::stable_sort(owners.begin(), owners.end(),
                   [](const auto& a, const auto& b) { return rank(a.kind) < rank(b.kind); });
}

// The events after which the plot takes a sample. Divides the step into `moments` parts and takes
// the moment with the most bytes of each part.
std::vector<size_t> moments_of(const MemoryTrace& trace, size_t begin, size_t moments) {
  std::vector<size_t> chosen;
  const size_t events = trace.size() - begin;
  const size_t stretches = std::max<size_t>(1, std::min(moments, events));
  int64_t sum = 0;
  size_t next = begin;
  for (size_t stretch = 0; stretch < stretches && events > 0; ++stretch) {
    const size_t end = begin + (stretch + 1) * events / stretches;
    int64_t largest = 0;
    size_t at = next;
    for (size_t i = next; i < end; ++i) {
      sum += trace[i].bytes;
      if (i == next || sum > largest) {
        largest = sum;
        at = i;
      }
    }
    chosen.push_back(at);
    next = end;
  }
  return chosen;
}

}  // namespace

MemoryTimeline memory_timeline_of(const MemoryTrace& trace, size_t begin,
                                  const std::vector<PassMark>& passes, size_t moments) {
  MemoryTimeline timeline;
  Ledger ledger(kinds_by_lifetime(trace, begin, passes));
  for (size_t i = 0; i < begin; ++i) ledger.add(trace[i]);
  timeline.before_bytes = timeline.peak_bytes = ledger.total();
  timeline.as_tagged = ledger.tagged();
  const std::vector<size_t> chosen = moments_of(trace, begin, moments);
  std::map<OwnerKey, size_t> rows;
  std::map<OwnerKey, int64_t> at_peak = ledger.live();
  size_t next = 0, next_pass = 0;
  for (size_t i = begin; i < trace.size(); ++i) {
    while (next_pass < passes.size() && passes[next_pass].event <= i) {
      timeline.passes.push_back({timeline.total.size(), passes[next_pass++].pass});
    }
    ledger.add(trace[i]);
    if (ledger.total() > timeline.peak_bytes) {
      timeline.peak_bytes = ledger.total();
      timeline.peak_moment = timeline.total.size();
      timeline.as_tagged = ledger.tagged();
      at_peak = ledger.live();
    }
    if (next < chosen.size() && chosen[next] == i) {
      for (const auto& [key, bytes] : ledger.live()) {
        MemoryOwner& owner = owner_of(timeline, rows, key);
        owner.bytes.resize(timeline.total.size(), 0);
        owner.bytes.push_back(bytes);
      }
      timeline.total.push_back(ledger.total());
      ++next;
    }
  }
  timeline.after_bytes = ledger.total();
  for (MemoryOwner& owner : timeline.owners) owner.bytes.resize(timeline.total.size(), 0);
  for (const auto& [key, bytes] : at_peak) {
    timeline.at_peak.at(static_cast<size_t>(key.first)) += bytes;
    owner_of(timeline, rows, key).at_peak = bytes;
  }
  for (MemoryOwner& owner : timeline.owners) owner.bytes.resize(timeline.total.size(), 0);
  sort_owners(timeline.owners);
  return timeline;
}

}  // namespace tanren
