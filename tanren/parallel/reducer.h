// Reducer: sums gradients over ranks while backward still computes others. Buckets are ranges of
// the flat gradient buffers, so nothing is copied. They go from the last parameter to the first,
// which is about the order in which backward completes them. From the second window on, they are
// sent in the order in which rank 0's backward completed them in the first window. If ranks share
// the gradients (Sharding), each rank receives only the sum of its part. A transient bucket is
// freed when its sum has arrived; before it sends the next one, backward waits until at most two
// are under way. Invariant: every rank starts every bucket of the objectives that are due once a
// window, in the same order, whichever gradients its own backward reached. With one rank it does
// nothing. One per phase, on the step's thread; the hooks run on backward's thread. Called by
// accumulate and by custom loops.
#pragma once

#include "tanren/comm/communicator.h"
#include "tanren/parallel/gradients.h"

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tanren {

struct ReducerOptions {
  // For gradients that are not shared; shared ones are cut into buckets already.
  int64_t first_bucket_bytes = int64_t{1} << 20;  // small, so that the wire is busy early
  int64_t bucket_bytes = int64_t{25} << 20;
  bool overlap = true;  // false: all buckets are sent in finish()
  // The dtype of fp32 gradients on the wire; unset: fp32. Each rank's gradients are rounded to it,
  // and so is the sum. With fp16 they are first divided by the number of ranks, so that the sum
  // does not overflow earlier.
  std::optional<at::ScalarType> wire = std::nullopt;
};

class Reducer {
 public:
  // The gradients of all objectives of a phase, in the order of their backwards. They and the
  // communicator must outlive the reducer.
  Reducer(std::vector<Gradients*> gradients, Communicator& communicator,
          const ReducerOptions& options = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Before a window: marks all buckets as not sent. Before the second window, with overlap, it also
  // agrees on the order of the buckets: one small broadcast. `in_turn` has a flag for each
  // objective: with 0, none of its buckets is sent in this window. Empty: all are sent. CommError.
  void begin(const std::vector<uint8_t>& in_turn = {});
  // After the window's last backward: starts the buckets that were not sent yet, and waits for all.
  // Gradients that were set to none and not computed again are 0. Afterwards every gradient is the
  // sum over ranks, bitwise the same on each. If ranks share the gradients, this holds for the
  // parts that this rank owns. CommError.
  void finish();

  int64_t num_buckets() const { return static_cast<int64_t>(buckets_.size()); }
  // Buckets of the last window that were sent before finish() was called.
  int64_t num_overlapped() const { return overlapped_; }
  // Reductions since the reducer was made.
  int64_t num_reductions() const { return reductions_; }

 private:
  friend class SyncScope;
  struct Bucket {
    size_t objective = 0;
    size_t index = 0;     // in its layout
    bool shared = false;  // over ranks: each gets only the sum of its part
    at::Tensor range = {};
    at::Tensor wire = {};  // its rounded copy, if it has one
    int64_t members = 0;
    int64_t missing = 0;
  };
  void add_buckets(size_t objective, const ReducerOptions& options);
  void agree_order();
  void fired(size_t objective, size_t parameter);
  bool sends(const Bucket& bucket) const;
  void start_next();
  void land(const Bucket& bucket) const;
  void land_until(size_t end);
  double wire_factor(const Bucket& bucket) const;

  std::vector<Gradients*> gradients_;
  Communicator& communicator_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<size_t>> bucket_of_;  // by objective and parameter
  std::vector<std::vector<uint8_t>> complete_;  // the same: complete in this window
  std::vector<size_t> order_;                   // the order in which buckets are sent
  std::vector<size_t> observed_;                // the order of completion in the first window
  bool is_first_window_ = true;
  bool has_agreed_ = false;
  std::vector<uint8_t> in_turn_;           // by objective; empty: all
  std::vector<Communicator::Work> works_;  // null for a bucket that is not sent
  size_t next_ = 0;                        // place in order_ of the bucket to send next
  size_t landed_ = 0;                      // place in order_ of the first that has not arrived
  int64_t overlapped_ = 0;
  int64_t reductions_ = 0;
  bool overlap_ = true;
  bool last_ = false;
};

// While it lives with `is_last`, gradients that backward completes are sent to the other ranks: the
// backward is of the window's last microstep, or of the last part of a split one. Otherwise they
// wait.
class SyncScope {
 public:
  SyncScope(Reducer& reducer, bool is_last) : reducer_(reducer) { reducer_.last_ = is_last; }
  ~SyncScope() { reducer_.last_ = false; }
  SyncScope(const SyncScope&) = delete;
  SyncScope& operator=(const SyncScope&) = delete;

 private:
  Reducer& reducer_;
};

}  // namespace tanren
