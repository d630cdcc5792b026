#include "tanren/comm/c10d_messages.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace tanren {

namespace {

// 16 bits of the number and 15 bits of a hash of size and dtype. Messages that differ in size or
// dtype almost never match (1 in 32768), so both waits end with their timeouts. If they matched,
// Gloo would end the process when more bytes come than it expects. The hash is the end of
// splitmix64 (Steele et al., 2014), so that all pairs of sizes are equally unlikely to share it.
int tag_of(int64_t number, const at::Tensor& tensor) {
  auto hash =
      static_cast<uint64_t>(tensor.nbytes()) << 8U | static_cast<uint64_t>(tensor.scalar_type());
  hash = (hash ^ (hash >> 30U)) * 0xBF58476D1CE4E5B9U;
  hash = (hash ^ (hash >> 27U)) * 0x94D049BB133111EBU;
  hash = (hash ^ (hash >> 31U)) >> 49U;
  return static_cast<int>((static_cast<uint64_t>(number) & 0xFFFFU) << 15U | hash);
}

// Messages given to the backend while it lives form one group. Without a backend there is no group.
class GroupScope {
 public:
  explicit GroupScope(c10d::Backend* backend) : backend_(backend) {
    if (backend_ != nullptr) backend_->startCoalescing();
  }
  ~GroupScope() {
    try {
      end();
    } catch (const std::exception&) {  // the error that left it open is already thrown
    }
  }
  GroupScope(const GroupScope&) = delete;
  GroupScope& operator=(const GroupScope&) = delete;

  // The work of the whole group.
  c10::intrusive_ptr<c10d::Work> end() {
    c10d::Backend* backend = std::exchange(backend_, nullptr);
    return backend == nullptr ? nullptr : backend->endCoalescing();
  }

 private:
  c10d::Backend* backend_;
};

void end_wait(c10d::Work& work) {
  try {
    work.abort();
  } catch (const std::exception&) {  // it has no abort: the backend's abort ends its wait
  }
}

}  // namespace

C10dMessages::C10dMessages(c10d::Backend& backend, bool in_groups)
    : backend_(backend),
      in_groups_(in_groups),
      num_sent_(static_cast<size_t>(backend.getSize())),
      num_received_(num_sent_) {}

std::shared_ptr<C10dMessage> C10dMessages::send(const at::Tensor& tensor, int rank) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<C10dMessage> message = numbered(true, tensor, rank);
  Batch batch = take_posted(rank, nullptr);
  batch.push_back(message);
  start(batch);
  return message;
}

std::shared_ptr<C10dMessage> C10dMessages::post(const at::Tensor& tensor, int rank) {
  if (!in_groups_) return send(tensor, rank);
  const std::lock_guard lock(mutex_);
  return posted_.emplace_back(numbered(true, tensor, rank));
}

std::shared_ptr<C10dMessage> C10dMessages::receive(const at::Tensor& tensor, int rank) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<C10dMessage> message = numbered(false, tensor, rank);
  if (in_groups_) {
    posted_.push_back(message);
  } else {
    start({message});
  }
  return message;
}

std::shared_ptr<C10dMessage> C10dMessages::numbered(bool is_sent, const at::Tensor& tensor,
                                                    int rank) {
  // As bytes, so that every dtype works.
  const at::NoGradGuard no_grad;
  const at::Tensor bytes = tensor.detach().view(-1).view(at::kByte);
  int64_t& count = (is_sent ? num_sent_ : num_received_)[static_cast<size_t>(rank)];
  return std::make_shared<C10dMessage>(
      C10dMessage{is_sent, rank, tag_of(count++, tensor), {bytes}});
}

void C10dMessages::launch(const C10dMessage& message) {
  const std::lock_guard lock(mutex_);
  if (message.work || is_over()) return;
  const bool is_posted = std::any_of(posted_.begin(), posted_.end(),
                                     [&](const auto& posted) { return posted.get() == &message; });
  if (is_posted) start(take_posted(message.rank, &message));
}

C10dMessages::Batch C10dMessages::take_posted(int rank, const C10dMessage* last) {
  Batch taken, left;
  bool is_past = false;
  for (auto& message : std::exchange(posted_, {})) {
    const bool is_taken = message->rank == rank && !is_past;
    is_past = is_past || message.get() == last;
    (is_taken ? taken : left).push_back(std::move(message));
  }
  posted_ = std::move(left);
  return taken;
}

void C10dMessages::start(const Batch& batch) {
  GroupScope group(in_groups_ ? &backend_ : nullptr);
  for (const auto& message : batch) {
    auto work = message->is_sent ? backend_.send(message->bytes, message->rank, message->tag)
                                 : backend_.recv(message->bytes, message->rank, message->tag);
    if (!in_groups_) message->work = std::move(work);
  }
  if (!in_groups_) return;
  const auto work = group.end();
  for (const auto& message : batch) message->work = work;
}

bool C10dMessages::is_over() {
  const std::lock_guard lock(waits_mutex_);
  return is_over_;
}

// c10d's Gloo completes a message inside wait(), and closes all connections of the group when
// a wait's time is over. So there is one wait with the whole timeout.
bool C10dMessages::wait(const C10dMessage& message, std::chrono::milliseconds timeout) {
  if (!message.work) return false;
  c10d::Work& work = *message.work;
  {
    const std::lock_guard lock(waits_mutex_);
    if (is_over_) return false;
    waits_.insert(&work);
  }
  const auto left = [&] {
    const std::lock_guard lock(waits_mutex_);
    waits_.erase(waits_.find(&work));
  };
  try {
    const bool has_arrived = timeout.count() > 0 ? work.wait(timeout) : work.wait();
    left();
    return has_arrived;
  } catch (...) {
    left();
    throw;
  }
}

void C10dMessages::end() {
  const std::lock_guard lock(waits_mutex_);
  is_over_ = true;
  for (c10d::Work* work : waits_) end_wait(*work);
}

}  // namespace tanren
