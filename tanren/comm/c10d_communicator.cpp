#include "tanren/comm/c10d_communicator.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <utility>
#include <vector>

namespace tanren {

namespace {

class C10dCommunicator final : public Communicator {
 public:
  C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, std::string name, bool in_place,
                   at::Device device)
      : backend_(std::move(backend)),
        name_(std::move(name)),
        in_place_(in_place),
        device_(device) {}

  int rank() const override { return backend_->getRank(); }
  int world_size() const override { return backend_->getSize(); }
  std::string_view name() const override { return name_; }
  at::Device device() const override { return device_; }

  Work start_sum(const at::Tensor& tensor) override {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::SUM;
    return started("sum", [&] { return backend_->allreduce(tensors, options); }, {tensor});
  }
  Work start_sum_scatter(const at::Tensor& part, const at::Tensor& whole) override {
    at::Tensor to = part.view(-1), from = whole.view(-1);
    return started("scattered sum", [&] { return backend_->_reduce_scatter_base(to, from); },
                   {part, whole});
  }
  Work start_gather(const at::Tensor& whole, const at::Tensor& part) override {
    at::Tensor to = whole.view(-1), from = part.reshape(-1);  // any shapes: Gloo would compare them
    if (!in_place_ && part.is_alias_of(whole)) from = from.clone();
    return started("gathering", [&] { return backend_->_allgather_base(to, from); }, {whole, from});
  }
  Work start_broadcast(const at::Tensor& tensor, int root) override {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return started("broadcast", [&] { return backend_->broadcast(tensors, options); }, {tensor});
  }

  void cancel(const std::string& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (why_.empty()) why_ = why;
    }
    backend_->abort();
  }

 private:
  class C10dPending final : public Pending {
   public:
    C10dPending(C10dCommunicator& owner, const char* what, c10::intrusive_ptr<c10d::Work> work,
                std::vector<at::Tensor> tensors)
        : owner_(owner), what_(what), work_(std::move(work)), tensors_(std::move(tensors)) {}
    void wait() override {
      owner_.guarded(what_, [&] { work_->wait(); });
    }

   private:
    C10dCommunicator& owner_;
    const char* what_;
    c10::intrusive_ptr<c10d::Work> work_;
    std::vector<at::Tensor> tensors_;  // alive until it is done
  };

  template <class F>
  Work started(const char* what, const F& start, std::vector<at::Tensor> tensors) {
    c10::intrusive_ptr<c10d::Work> work;
    guarded(what, [&] {
      const at::NoGradGuard no_grad;
      work = start();
    });
    return std::make_unique<C10dPending>(*this, what, std::move(work), std::move(tensors));
  }

  template <class F>
  void guarded(const char* what, const F& work) {
    try {
      work();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (!why_.empty()) throw CommError(why_);
      throw CommError(fmt::format("[comm] rank {} of {}, a {} over {}: {}", rank(), world_size(),
                                  what, name_, first_line(error.what())));
    }
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::string name_;
  bool in_place_;
  at::Device device_;
  std::mutex mutex_;
  std::string why_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Communicator> c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                std::string name, bool in_place,
                                                at::Device device) {
  return std::make_unique<C10dCommunicator>(std::move(backend), std::move(name), in_place, device);
}

}  // namespace tanren
