#include "tests/support/accelerator/collectives.h"

#include "tests/support/accelerator/simulator.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace tanren::sim {

namespace {

using Tensors = std::vector<at::Tensor>;
// Computes on the device's memory; by rank.
using Kernel = std::function<void(const Tensors& from, const Tensors& to)>;

// The n-th collective of a group.
struct Meeting {
  Tensors from, to;  // by rank, until all have come
  int missing = 0;
};

class Group final : public RankGroup, public std::enable_shared_from_this<Group> {
 public:
  explicit Group(int size) : size_(size) {}
  int size() const { return size_; }
  c10::intrusive_ptr<c10d::Backend> backend(int rank) override;

  // Rank `rank` starts its next collective. The last rank to come launches it, for all.
  std::shared_ptr<Meeting> come(int rank, int64_t number, const char* what, const at::Tensor& from,
                                const at::Tensor& to, const Kernel& kernel) {
    TORCH_CHECK(is_here(from) && is_here(to), what, " of a tensor on ", from.device());
    const int stream = stream_of(to);
    order(current_stream(to.device().index()), stream);
    const std::lock_guard lock(mutex_);
    auto& meeting = open_[number];
    if (!meeting) {
      meeting = std::make_shared<Meeting>();
      meeting->from.resize(at_index(size_));
      meeting->to.resize(at_index(size_));
      meeting->missing = size_;
    }
    const auto mine = meeting;
    mine->from[at_index(rank)] = from;
    mine->to[at_index(rank)] = to;
    if (mine->missing == 1) {
      launch_for_all(what, *mine, kernel);
      open_.erase(number);
    }
    --mine->missing;
    changed_.notify_all();
    return mine;
  }

  bool is_complete(const Meeting& meeting) {
    const std::lock_guard lock(mutex_);
    return meeting.missing == 0;
  }
  // A kernel here runs when it is launched, so the host waits until all ranks have come.
  void wait(const Meeting& meeting, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto over = [&] { return meeting.missing == 0 || aborted_; };
    if (timeout.count() > 0) {
      TORCH_CHECK(changed_.wait_for(lock, timeout, over), "a collective timed out after ",
                  timeout.count(), " ms");
    } else {
      changed_.wait(lock, over);
    }
    TORCH_CHECK(meeting.missing == 0, "the communicator was aborted");
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

  static int stream_of(const at::Tensor& tensor) {
    return stream_at(tensor.device().index(), kStreams - 1);
  }

 private:
  static void launch_for_all(const char* what, Meeting& meeting, const Kernel& kernel) {
    const int first = stream_of(meeting.to[0]);
    std::vector<Use> uses;
    Tensors from, to;
    for (const at::Tensor& tensor : meeting.from) {
      uses.push_back(use_of(tensor, /*writes=*/false));
      from.push_back(inside(tensor));
    }
    for (const at::Tensor& tensor : meeting.to) {
      uses.push_back(use_of(tensor, /*writes=*/true));
      to.push_back(inside(tensor));
      order(stream_of(tensor), first);
    }
    launch(first, what, uses, [&] { kernel(from, to); });
    for (const at::Tensor& tensor : meeting.to) order(first, stream_of(tensor));
    meeting.from.clear();
    meeting.to.clear();
  }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::shared_ptr<Meeting>> open_;
  bool aborted_ = false;
};

class Work final : public c10d::Work {
 public:
  Work(std::shared_ptr<Group> group, std::shared_ptr<Meeting> meeting, int stream)
      : group_(std::move(group)), meeting_(std::move(meeting)), stream_(stream) {}
  bool isCompleted() override { return group_->is_complete(*meeting_); }
  bool wait(std::chrono::milliseconds timeout) override {
    group_->wait(*meeting_, timeout);
    order(stream_, current_stream(device_of(stream_)));
    return true;
  }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<Meeting> meeting_;
  int stream_;
};

at::Tensor sum_of(const Tensors& tensors) {
  at::Tensor sum = tensors[0].clone();
  for (size_t i = 1; i < tensors.size(); ++i) sum.add_(tensors[i]);
  return sum;
}

class Backend final : public c10d::Backend {
 public:
  Backend(std::shared_ptr<Group> group, int rank)
      : c10d::Backend(rank, group->size()), group_(std::move(group)) {}
  const std::string getBackendName() const override { return "sim"; }

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors,
                                           const c10d::AllreduceOptions& /*options*/) override {
    return start("sum over ranks", tensors[0], tensors[0],
                 [](const Tensors& from, const Tensors& to) {
                   const at::Tensor sum = sum_of(from);
                   for (const at::Tensor& tensor : to) tensor.copy_(sum);
                 });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& tensors,
                                           const c10d::BroadcastOptions& options) override {
    const auto root = at_index(options.rootRank);
    return start("broadcast", tensors[0], tensors[0],
                 [root](const Tensors& from, const Tensors& to) {
                   for (size_t i = 0; i < to.size(); ++i) {
                     if (i != root) to[i].copy_(from[root]);
                   }
                 });
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& whole, at::Tensor& part,
                                                 const c10d::AllgatherOptions& /*o*/) override {
    return start("gather", part, whole, [](const Tensors& parts, const Tensors& wholes) {
      const at::Tensor all = at::cat(parts);
      for (const at::Tensor& whole : wholes) whole.copy_(all);
    });
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& part, at::Tensor& whole, const c10d::ReduceScatterOptions& /*o*/) override {
    return start("scattered sum", whole, part, [](const Tensors& wholes, const Tensors& parts) {
      const auto sums = sum_of(wholes).chunk(static_cast<int64_t>(parts.size()));
      for (size_t i = 0; i < parts.size(); ++i) parts[i].copy_(sums[i]);
    });
  }
  void abort() override { group_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> start(const char* what, const at::Tensor& from,
                                       const at::Tensor& to, const Kernel& kernel) {
    auto meeting = group_->come(getRank(), number_++, what, from, to, kernel);
    return c10::make_intrusive<Work>(group_, std::move(meeting), Group::stream_of(to));
  }

  std::shared_ptr<Group> group_;
  int64_t number_ = 0;
};

c10::intrusive_ptr<c10d::Backend> Group::backend(int rank) {
  return c10::make_intrusive<Backend>(shared_from_this(), rank);
}

}  // namespace

std::shared_ptr<RankGroup> RankGroup::of(int size) { return std::make_shared<Group>(size); }

}  // namespace tanren::sim
