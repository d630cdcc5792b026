#include "tanren/comm/c10d_messages.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <exception>
#include <utility>

namespace tanren {

namespace {

// 16 bits of the number and 15 of the size's hash. Messages of different sizes do not meet, and
// both waits end with their time: Gloo would end the process if more bytes came than it expects.
int tag_of(int64_t number, int64_t bytes) {
  const uint64_t size = (static_cast<uint64_t>(bytes) * 0x9E3779B97F4A7C15U) >> 49U;
  return static_cast<int>((static_cast<uint64_t>(number) & 0xFFFFU) << 15U | size);
}

void end_wait(c10d::Work& work) {
  try {
    work.abort();
  } catch (const std::exception&) {  // it has no abort: the backend's own ends its wait
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
  std::shared_ptr<C10dMessage> message = post(true, tensor, rank);
  launch_posted();
  return message;
}

std::shared_ptr<C10dMessage> C10dMessages::receive(const at::Tensor& tensor, int rank) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<C10dMessage> message = post(false, tensor, rank);
  if (!in_groups_) launch_posted();
  return message;
}

std::shared_ptr<C10dMessage> C10dMessages::post(bool is_sent, const at::Tensor& tensor, int rank) {
  // As bytes, so that every dtype goes.
  const at::NoGradGuard no_grad;
  const at::Tensor bytes = tensor.detach().view(-1).view(at::kByte);
  int64_t& count = (is_sent ? num_sent_ : num_received_)[static_cast<size_t>(rank)];
  posted_.push_back(std::make_shared<C10dMessage>(
      C10dMessage{is_sent, rank, tag_of(count++, bytes.numel()), {bytes}}));
  return posted_.back();
}

void C10dMessages::launch(const C10dMessage& message) {
  const std::lock_guard lock(mutex_);
  if (!message.work) launch_posted();
}

void C10dMessages::launch_posted() {
  const auto batch = std::exchange(posted_, {});
  if (in_groups_) backend_.startCoalescing();
  for (const auto& message : batch) {
    message->work = message->is_sent ? backend_.send(message->bytes, message->rank, message->tag)
                                     : backend_.recv(message->bytes, message->rank, message->tag);
  }
  if (!in_groups_) return;
  const auto work = backend_.endCoalescing();
  for (const auto& message : batch) message->work = work;
}

// c10d's Gloo completes a message inside wait(), and closes all connections of the group when
// a wait's time is over. So there is one wait with the whole timeout.
bool C10dMessages::wait(const C10dMessage& message, std::chrono::milliseconds timeout) {
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
