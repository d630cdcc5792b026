#include "tests/support/accelerator/collectives.h"

#include "tests/support/accelerator/simulator.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

namespace tanren::sim {

namespace {

using Tensors = std::vector<at::Tensor>;
// Computes on device memory. `from` and `to` hold one tensor for each rank.
using Kernel = std::function<void(const Tensors& from, const Tensors& to)>;

struct Message {
  bool is_sent;  // else received
  int rank;      // the other
  at::Tensor tensor;
  bool is_done = false;
};

// What a rank has started: its part of a collective, or messages.
struct Operation {
  const char* what;
  int stream;   // of the group, on the rank's device
  Clock given;  // clock of the rank's current stream at the start
  at::Tensor from = {}, to = {};
  Kernel kernel = {};  // empty: messages
  std::vector<Message> messages = {};
  bool is_done = false;
  Clock ended = {};
};

// NCCL lets a host go on while a lost rank keeps its stream waiting. Here the host waits as well.
constexpr std::chrono::seconds kTimeout{60};

class Group final : public RankGroup, public std::enable_shared_from_this<Group> {
 public:
  explicit Group(int size) : queues_(at_index(size)) {}
  int size() const { return static_cast<int>(queues_.size()); }
  c10::intrusive_ptr<c10d::Backend> backend(int rank) override;
  std::shared_ptr<RankGroup> part(const std::string& name, int size) override {
    const std::lock_guard lock(mutex_);
    auto& part = parts_[name];
    if (!part) part = std::make_shared<Group>(size);
    TORCH_CHECK(part->size() == size, "part ", name, " has ", part->size(), " ranks");
    return part;
  }

  std::shared_ptr<Operation> start(int rank, Operation operation) {
    const auto started = std::make_shared<Operation>(std::move(operation));
    const std::lock_guard lock(mutex_);
    queues_[at_index(rank)].push_back(started);
    while (advance()) {
    }
    changed_.notify_all();
    return started;
  }
  // Returns an operation that starts now on the device of `tensor`.
  Operation begun(const char* what, const at::Tensor& tensor) const {
    TORCH_CHECK(is_here(tensor), what, " of a tensor on ", tensor.device());
    const auto device = tensor.device().index();
    return {.what = what,
            .stream = stream_at(device, 1 + kPoolStreams + number_ % kGroupStreams),
            .given = record(current_stream(device))};
  }

  bool is_done(const Operation& operation) {
    const std::lock_guard lock(mutex_);
    return operation.is_done;
  }
  // A kernel here runs when it is launched, so the host waits until all its ranks have come.
  void wait(const Operation& operation, std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (timeout.count() <= 0) timeout = kTimeout;
    const auto over = [&] { return operation.is_done || aborted_; };
    TORCH_CHECK(changed_.wait_for(lock, timeout, over), operation.what, " timed out after ",
                timeout.count(), " ms");
    TORCH_CHECK(operation.is_done, "the communicator was aborted");
    block(current_stream(device_of(operation.stream)), operation.ended);
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  // The first unfinished operation of `rank`; null: none.
  Operation* front(size_t rank) {
    return queues_[rank].empty() ? nullptr : queues_[rank].front().get();
  }
  // Runs what can run now. Returns whether anything did.
  bool advance() {
    bool has_moved = advance_collective();
    for (size_t from = 0; from < queues_.size(); ++from) {
      for (size_t to = 0; to < queues_.size(); ++to) has_moved |= advance_message(from, to);
    }
    for (auto& queue : queues_) has_moved |= end_messages(queue);
    return has_moved;
  }

  bool advance_collective() {
    std::vector<Operation*> all;
    for (size_t rank = 0; rank < queues_.size(); ++rank) {
      all.push_back(front(rank));
      if (all.back() == nullptr || !all.back()->kernel) return false;
    }
    const int first = all[0]->stream;
    std::vector<Use> uses;
    Tensors from, to;
    for (const Operation* one : all) {
      uses.push_back(use_of(one->from, /*writes=*/false));
      from.push_back(inside(one->from));
    }
    for (const Operation* one : all) {
      uses.push_back(use_of(one->to, /*writes=*/true));
      to.push_back(inside(one->to));
      block(one->stream, one->given);
      order(one->stream, first);
    }
    launch(first, all[0]->what, uses, [&] { all[0]->kernel(from, to); });
    for (size_t rank = 0; rank < all.size(); ++rank) {
      order(first, all[rank]->stream);
      end(queues_[rank]);
    }
    return true;
  }

  Message* message_of(size_t rank, size_t other, bool is_sent) {
    Operation* const own = front(rank);
    if (own == nullptr) return nullptr;
    for (Message& message : own->messages) {
      const bool is_it = message.is_sent == is_sent && at_index(message.rank) == other;
      if (is_it && !message.is_done) return &message;
    }
    return nullptr;
  }
  // The copy runs on the receiver's stream, and both streams wait for each other.
  bool advance_message(size_t from, size_t to) {
    Message *sent = message_of(from, to, true), *received = message_of(to, from, false);
    if (sent == nullptr || received == nullptr) return false;
    for (const size_t rank : {from, to}) block(front(rank)->stream, front(rank)->given);
    const int sends = front(from)->stream, receives = front(to)->stream;
    order(sends, receives);
    launch(receives, "message", {use_of(sent->tensor, false), use_of(received->tensor, true)},
           [&] { inside(received->tensor).copy_(inside(sent->tensor)); });
    order(receives, sends);
    for (Message* end : {sent, received}) {
      end->is_done = true;
      end->tensor = at::Tensor();
    }
    return true;
  }

  using Queue = std::deque<std::shared_ptr<Operation>>;
  static bool end_messages(Queue& queue) {
    if (queue.empty() || queue.front()->kernel) return false;
    const auto& messages = queue.front()->messages;
    const auto is_done = [](const Message& message) { return message.is_done; };
    if (!std::all_of(messages.begin(), messages.end(), is_done)) return false;
    end(queue);
    return true;
  }
  static void end(Queue& queue) {
    Operation& done = *queue.front();
    done.from = done.to = at::Tensor();
    done.ended = record(done.stream);
    done.is_done = true;
    queue.pop_front();
  }

  static inline std::atomic<int> groups_ = 0;
  const int number_ = groups_++;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Queue> queues_;  // by rank
  std::map<std::string, std::shared_ptr<Group>> parts_;
  bool aborted_ = false;
};

class Work final : public c10d::Work {
 public:
  Work(std::shared_ptr<Group> group, std::shared_ptr<Operation> operation)
      : group_(std::move(group)), operation_(std::move(operation)) {}
  bool isCompleted() override { return group_->is_done(*operation_); }
  bool wait(std::chrono::milliseconds timeout) override {
    group_->wait(*operation_, timeout);
    return true;
  }

 private:
  std::shared_ptr<Group> group_;
  std::shared_ptr<Operation> operation_;
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
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int rank, int /*tag*/) override {
    return add({.is_sent = true, .rank = rank, .tensor = tensors[0]});
  }
  c10::intrusive_ptr<c10d::Work> recv(Tensors& tensors, int rank, int /*tag*/) override {
    return add({.is_sent = false, .rank = rank, .tensor = tensors[0]});
  }
  void startCoalescing() override {
    messages_.clear();
    collects_ = true;
  }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    collects_ = false;
    return start_messages();
  }
  void abort() override { group_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> start(const char* what, const at::Tensor& from,
                                       const at::Tensor& to, const Kernel& kernel) {
    TORCH_CHECK(is_here(from), what, " of a tensor on ", from.device());
    Operation own = group_->begun(what, to);
    own.from = from;
    own.to = to;
    own.kernel = kernel;
    return c10::make_intrusive<Work>(group_, group_->start(getRank(), std::move(own)));
  }
  c10::intrusive_ptr<c10d::Work> add(Message message) {
    messages_.push_back(std::move(message));
    return collects_ ? c10::intrusive_ptr<c10d::Work>() : start_messages();
  }
  c10::intrusive_ptr<c10d::Work> start_messages() {
    TORCH_CHECK(!messages_.empty(), "a group without messages");
    Operation own = group_->begun("messages", messages_[0].tensor);
    own.messages = std::exchange(messages_, {});
    return c10::make_intrusive<Work>(group_, group_->start(getRank(), std::move(own)));
  }

  std::shared_ptr<Group> group_;
  std::vector<Message> messages_;
  bool collects_ = false;
};

c10::intrusive_ptr<c10d::Backend> Group::backend(int rank) {
  return c10::make_intrusive<Backend>(shared_from_this(), rank);
}

}  // namespace

std::shared_ptr<RankGroup> RankGroup::of(int size) { return std::make_shared<Group>(size); }

}  // namespace tanren::sim
