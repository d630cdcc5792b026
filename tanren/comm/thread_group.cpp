#include "tanren/comm/thread_group.h"

#include "tanren/base/error.h"
#include "tanren/base/seconds.h"
#include "tanren/base/text.h"
#include "tanren/comm/cause.h"
#include "tanren/comm/exchange.h"
#include "tanren/comm/thread_line.h"
#include "tanren/comm/thread_wires.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {

namespace {

using Clock = ThreadLine::Clock;

// A rank's tensors in an operation: what it gives, and where the result goes.
struct Given {
  at::Tensor from, to;
};
// Does one share of the work; there are as many shares as ranks. Shares do not overlap, so they may
// run at the same time, and the sums do not depend on which thread does which share.
using Combine = std::function<void(const std::vector<Given>&, size_t share)>;

// Below this many bytes a waiting rank is not woken for its share: the last rank does all shares.
constexpr size_t kWorthSharing = 64 << 10;
// How long a wait polls before it sleeps: waking up costs about as much.
constexpr std::chrono::microseconds kLooking{50};

// Operation `number` of every rank.
struct Call {
  int64_t number = 0;
  std::string what;  // kind, elements, dtype: the same on every rank
  int first = 0;     // the rank that came first
  std::vector<Given> given;
  std::vector<bool> present;
  Combine combine;
  size_t taken = 0, finished = 0;  // shares
  Clock::time_point arrives;       // over the simulated link
  // Written under the mutex, and read without it.
  std::atomic<int> missing{0};
  std::atomic<bool> done{false};
};

at::Tensor row(const at::Tensor& tensor) { return tensor.view(-1); }

// The share-th part of all elements in memory order; if not contiguous, share 0 is the whole.
at::Tensor share_of(const at::Tensor& tensor, size_t share, size_t shares) {
  if (!tensor.is_contiguous()) return share == 0 ? tensor : tensor.new_empty({0});
  const int64_t n = tensor.numel(), i = static_cast<int64_t>(share);
  const auto of = static_cast<int64_t>(shares);
  return row(tensor).slice(0, n * i / of, n * (i + 1) / of);
}

// Sums all tensors into the first in rank order, and copies the sum to the others.
void sum_all(const std::vector<Given>& ranks, size_t share) {
  const auto part = [&](size_t rank) { return share_of(ranks[rank].to, share, ranks.size()); };
  const at::Tensor total = part(0);
  for (size_t i = 1; i < ranks.size(); ++i) total.add_(part(i).to(total.device()));
  for (size_t i = 1; i < ranks.size(); ++i) part(i).copy_(total);
}

void sum_parts(const std::vector<Given>& ranks, size_t share) {
  const at::Tensor to = row(ranks[share].to);
  const auto part = [&](size_t rank) {
    return row(ranks[rank].from).narrow(0, static_cast<int64_t>(share) * to.numel(), to.numel());
  };
  const at::Tensor total = part(0);
  for (size_t rank = 1; rank < ranks.size(); ++rank) total.add_(part(rank).to(total.device()));
  to.copy_(total);
}

void gather_parts(const std::vector<Given>& ranks, size_t share) {
  int64_t first = 0;
  for (const Given& other : ranks) {
    const at::Tensor part = row(other.from);
    const at::Tensor place = row(ranks[share].to).narrow(0, first, part.numel());
    if (place.const_data_ptr() != part.const_data_ptr()) place.copy_(part);
    first += part.numel();
  }
}

// All ranks, or the ranks of a communicator that split() made. Its members are guarded by the
// group's mutex.
struct Part {
  explicit Part(std::vector<int> of_group)
      : ranks(std::move(of_group)), next(ranks.size(), 0), num_splits(ranks.size(), 0) {}

  const std::vector<int> ranks;  // in the group, by rank here
  int64_t number = 0;            // of this part in the group
  std::vector<int64_t> next;     // by rank, the number of its next operation
  std::map<int64_t, std::shared_ptr<Call>> open;
  std::vector<int64_t> num_splits;  // by rank
};

std::string named(const Part& part) {
  return part.number == 0 ? fmt::format("all {} ranks", part.ranks.size())
                          : text_of_ranks(part.ranks);
}

std::vector<int> first_ranks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

struct ThreadGroup::Shared : ThreadLine {
  Shared(int size, Options given)
      : ThreadLine(size), all(std::make_shared<Part>(first_ranks(size))), wires(*this) {
    bytes_per_second = given.bytes_per_second;
    timeout = given.timeout;
  }

  std::shared_ptr<Call> start(Part& part, int rank, const char* kind, const Given& given,
                              const Combine& combine);
  void wait(const Part& part, int rank, Call& call);
  void combine_share(Call& call, std::unique_lock<std::mutex>& lock);
  [[noreturn]] void give_up(const Part& part, const Call& call);
  // The rank with the fewest operations among those that have not come; below 0: none.
  static int latest(const Part& part, const Call& call);
  // The part of `parent` that consists of `ranks`, for its rank `rank`. All ranks that name the
  // same ranks in the same call get the same part.
  std::shared_ptr<Part> part_of(Part& parent, int rank, const std::vector<int>& ranks);

  const std::shared_ptr<Part> all;
  ThreadWires wires;
  // The parts by number of the parent, number of its split, and first rank; guarded by mutex.
  std::map<std::array<int64_t, 3>, std::shared_ptr<Part>> parts;
};

std::shared_ptr<Part> ThreadGroup::Shared::part_of(Part& parent, int rank,
                                                   const std::vector<int>& ranks) {
  const std::lock_guard lock(mutex);
  const int64_t split = parent.num_splits[static_cast<size_t>(rank)]++;
  auto& part = parts[{parent.number, split, ranks.front()}];
  if (part == nullptr) {
    part = std::make_shared<Part>(ranks);
    part->number = static_cast<int64_t>(parts.size());
  }
  return part;
}

std::shared_ptr<Call> ThreadGroup::Shared::start(Part& part, int rank, const char* kind,
                                                 const Given& given, const Combine& combine) {
  const std::string what = fmt::format("{} of {} {} elements", kind, given.from.numel(),
                                       c10::toString(given.from.scalar_type()));
  std::unique_lock lock(mutex);
  if (!aborted.empty()) throw CommError(aborted);
  const int64_t number = part.next[static_cast<size_t>(rank)]++;
  auto& slot = part.open[number];
  if (slot == nullptr) {
    slot = std::make_shared<Call>();
    slot->number = number;
    slot->what = what;
    slot->first = rank;
    slot->given.resize(part.ranks.size());
    slot->present.resize(part.ranks.size(), false);
    slot->missing = static_cast<int>(part.ranks.size());
  }
  std::shared_ptr<Call> call = slot;
  if (call->what != what) {
    const std::string why = fmt::format(
        "[comm] operation {}: rank {} asks for a {}, rank {} for a {}; ranks must run the same "
        "program on the same config",
        number, part.ranks[static_cast<size_t>(rank)], what,
        part.ranks[static_cast<size_t>(call->first)], call->what);
    lock.unlock();
    cancel(why);
    throw CommError(why);
  }
  call->given[static_cast<size_t>(rank)] = given;
  call->present[static_cast<size_t>(rank)] = true;
  if (call->missing > 1) {
    --call->missing;
    return call;
  }
  part.open.erase(number);
  call->arrives = carry(static_cast<int64_t>(given.from.nbytes()));
  call->combine = combine;
  call->missing = 0;
  // Kernels of a device are queued, so all shares start at once. On the CPU each waiting rank takes
  // a share.
  if (given.from.nbytes() < kWorthSharing || !given.from.is_cpu()) {
    while (call->taken < call->given.size()) combine_share(*call, lock);
  } else {
    changed.notify_all();
  }
  return call;
}

void ThreadGroup::Shared::combine_share(Call& call, std::unique_lock<std::mutex>& lock) {
  const size_t share = call.taken++;
  lock.unlock();
  try {
    const at::NoGradGuard no_grad;
    call.combine(call.given, share);
  } catch (const std::exception& error) {
    const std::string why = fmt::format("[comm] operation {}, a {}: {}", call.number, call.what,
                                        first_line(error.what()));
    cancel(why);
    throw CommError(why);
  }
  lock.lock();
  if (++call.finished < call.present.size()) return;
  call.given.clear();
  call.done = true;
  changed.notify_all();
}

void ThreadGroup::Shared::wait(const Part& part, int rank, Call& call) {
  const auto start = Clock::now();
  while (call.missing > 0 && Clock::now() - start < kLooking) std::this_thread::yield();
  if (std::unique_lock lock(mutex); !call.done) {
    const auto what = [&] { return fmt::format("a {} over {}", call.what, named(part)); };
    const ThreadWaitScope waiting(*this, lock, part.ranks[static_cast<size_t>(rank)],
                                  {what, [&] { return latest(part, call); }});
    const auto ready = [&] { return call.missing == 0 || !aborted.empty(); };
    if (!changed.wait_until(lock, start + timeout, ready)) give_up(part, call);
    while (!call.done && aborted.empty() && call.taken < call.present.size()) {
      combine_share(call, lock);
    }
    changed.wait(lock, [&] { return call.done || !aborted.empty(); });
    if (!call.done) throw CommError(aborted);
  }
  std::this_thread::sleep_until(call.arrives);
}

void ThreadGroup::Shared::give_up(const Part& part, const Call& call) {
  std::string late;
  for (size_t rank = 0; rank < call.present.size(); ++rank) {
    if (!call.present[rank]) late += (late.empty() ? "" : ", ") + to_text(part.ranks[rank]);
  }
  aborted =
      fmt::format("[comm] operation {}, a {}: rank {} did not come within {} s: {}", call.number,
                  call.what, late, in_seconds(timeout), all_waits().of_late(latest(part, call)));
  changed.notify_all();
  throw CommError(aborted);
}

int ThreadGroup::Shared::latest(const Part& part, const Call& call) {
  int found = -1;
  int64_t fewest = 0;
  for (size_t rank = 0; rank < call.present.size(); ++rank) {
    if (call.present[rank] || (found >= 0 && part.next[rank] >= fewest)) continue;
    found = part.ranks[rank];
    fewest = part.next[rank];
  }
  return found;
}

namespace {

class ThreadPending final : public Communicator::Pending {
 public:
  ThreadPending(std::shared_ptr<ThreadGroup::Shared> shared, std::shared_ptr<Part> part, int rank,
                std::shared_ptr<Call> call)
      : shared_(std::move(shared)), part_(std::move(part)), rank_(rank), call_(std::move(call)) {}
  void wait() override { shared_->wait(*part_, rank_, *call_); }

 private:
  std::shared_ptr<ThreadGroup::Shared> shared_;
  std::shared_ptr<Part> part_;
  const int rank_;
  std::shared_ptr<Call> call_;
};

class ThreadMessagePending final : public Communicator::Pending {
 public:
  ThreadMessagePending(std::shared_ptr<ThreadGroup::Shared> shared, const ThreadWires::Wire& wire,
                       bool sends, std::shared_ptr<ThreadWires::Message> message)
      : shared_(std::move(shared)), wire_(wire), sends_(sends), message_(std::move(message)) {}
  void wait() override { shared_->wires.wait(*message_, wire_, sends_, false); }
  void wait_on_host() override { shared_->wires.wait(*message_, wire_, sends_, true); }

 private:
  std::shared_ptr<ThreadGroup::Shared> shared_;
  const ThreadWires::Wire wire_;
  const bool sends_;
  std::shared_ptr<ThreadWires::Message> message_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup::Shared> shared, std::shared_ptr<Part> part,
                     int rank)
      : shared_(std::move(shared)), part_(std::move(part)), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return static_cast<int>(part_->ranks.size()); }
  std::string_view name() const override { return "threads"; }
  at::Device device_for(at::Device own) const override { return own; }

  Work start_sum(const at::Tensor& tensor) override {
    return start("sum", {tensor, tensor}, sum_all);
  }
  Work start_sum_scatter(const at::Tensor& part, const at::Tensor& whole) override {
    check_parts(part, whole);
    return start("scattered sum", {whole, part}, sum_parts);
  }
  Work start_gather(const at::Tensor& whole, const at::Tensor& part) override {
    check_parts(part, whole);
    return start("gathering", {part, whole}, gather_parts);
  }
  Work start_broadcast(const at::Tensor& tensor, int root) override {
    const std::string kind = fmt::format("broadcast from rank {}", root);
    return start(kind.c_str(), {tensor, tensor},
                 [root](const std::vector<Given>& ranks, size_t share) {
                   const at::Tensor& source = ranks[static_cast<size_t>(root)].from;
                   if (const Given& given = ranks[share]; !given.to.is_same(source))
                     given.to.copy_(source);
                 });
  }
  std::unique_ptr<Communicator> split(int colour) override {
    const at::Tensor colours = gather_numbers(*this, {colour});
    std::vector<int> ranks;
    int rank = 0;
    for (int other = 0; other < world_size(); ++other) {
      if (colours[other].item<int64_t>() != colour) continue;
      if (other == rank_) rank = static_cast<int>(ranks.size());
      ranks.push_back(in_group(other));
    }
    return std::make_unique<ThreadCommunicator>(shared_, shared_->part_of(*part_, rank_, ranks),
                                                rank);
  }
  void cancel(const std::string& why) override {
    shared_->cancel(cause_text(in_group(rank_), why));
  }
  void check() const override {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->aborted.empty()) throw CommError(shared_->aborted);
  }

 private:
  Work begin_send(const at::Tensor& tensor, int rank, const std::string& what) override {
    return message({part_->number, in_group(rank_), in_group(rank)}, true, tensor, what);
  }
  Work begin_receive(const at::Tensor& tensor, int rank, const std::string& what) override {
    return message({part_->number, in_group(rank), in_group(rank_)}, false, tensor, what);
  }
  Work message(const ThreadWires::Wire& wire, bool sends, const at::Tensor& tensor,
               const std::string& what) {
    auto started = shared_->wires.start(wire, sends, tensor, what);
    return std::make_unique<ThreadMessagePending>(shared_, wire, sends, std::move(started));
  }
  int in_group(int rank) const { return part_->ranks[static_cast<size_t>(rank)]; }
  Work start(const char* kind, const Given& given, const Combine& combine) {
    return std::make_unique<ThreadPending>(shared_, part_, rank_,
                                           shared_->start(*part_, rank_, kind, given, combine));
  }
  void check_parts(const at::Tensor& part, const at::Tensor& whole) const {
    if (part.numel() * world_size() == whole.numel()) return;
    throw CommError(fmt::format("[comm] {} ranks with parts of {} elements make no whole of {}",
                                world_size(), part.numel(), whole.numel()));
  }

  std::shared_ptr<ThreadGroup::Shared> shared_;
  std::shared_ptr<Part> part_;
  int rank_;
};

}  // namespace

ThreadGroup::ThreadGroup(int world_size) : ThreadGroup(world_size, Options{}) {}

ThreadGroup::ThreadGroup(int world_size, Options options)
    : shared_(std::make_shared<Shared>(world_size, options)) {}

std::unique_ptr<Communicator> ThreadGroup::communicator(int rank) const {
  return std::make_unique<ThreadCommunicator>(shared_, shared_->all, rank);
}

void ThreadGroup::cancel(const std::string& why) const { shared_->cancel(why); }

int64_t ThreadGroup::num_operations() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->operations;
}

int64_t ThreadGroup::num_bytes() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->bytes;
}

}  // namespace tanren
