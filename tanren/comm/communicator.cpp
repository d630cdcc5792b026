#include "tanren/comm/communicator.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>

namespace tanren {

namespace {

void check_message(const Communicator& comm, const at::Tensor& tensor, int rank) {
  const auto refuse = [&](const std::string& why) {
    throw CommError(fmt::format("[comm] rank {}, a message between it and rank {}: {}", comm.rank(),
                                rank, why));
  };
  if (rank < 0 || rank >= comm.world_size()) {
    refuse(fmt::format("there are {} ranks, from 0 on", comm.world_size()));
  }
  if (rank == comm.rank()) refuse("a rank sends itself none");
  if (!tensor.defined()) refuse("its tensor is undefined");
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
    refuse("its tensor is not dense and contiguous; take contiguous()");
  }
  if (const at::Device own = tensor.device(); comm.device_for(own).type() != own.type()) {
    refuse(fmt::format("its tensor is on {}, and {} carries tensors on {}", own.str(), comm.name(),
                       comm.device_for(own).str()));
  }
}

[[noreturn]] void refuse_all(const Communicator& comm, const char* what) {
  throw CommError(fmt::format("[comm] rank {}: the engine {} has no {}; take gloo, nccl or threads",
                              comm.rank(), comm.name(), what));
}

}  // namespace

Communicator::Work Communicator::start_send(const at::Tensor& tensor, int rank,
                                            const std::string& what) {
  check_message(*this, tensor, rank);
  return begin_send(tensor, rank, what);
}

Communicator::Work Communicator::post_send(const at::Tensor& tensor, int rank,
                                           const std::string& what) {
  check_message(*this, tensor, rank);
  return begin_post(tensor, rank, what);
}

Communicator::Work Communicator::start_receive(const at::Tensor& tensor, int rank,
                                               const std::string& what) {
  check_message(*this, tensor, rank);
  return begin_receive(tensor, rank, what);
}

Communicator::Work Communicator::begin_send(const at::Tensor&, int, const std::string&) {
  refuse_all(*this, "messages between two ranks");
}

Communicator::Work Communicator::begin_receive(const at::Tensor&, int, const std::string&) {
  refuse_all(*this, "messages between two ranks");
}

std::unique_ptr<Communicator> Communicator::split(int) { refuse_all(*this, "parts"); }

}  // namespace tanren
