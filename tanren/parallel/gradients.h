// Gradients: the persistent gradient storage of one objective. Each parameter's .grad is a view,
// with the parameter's own sizes and strides, into one flat buffer per dtype: zeroing, unscaling,
// measuring and reducing are one operation each, and backward never allocates. If ranks share the
// state (Sharding), each bucket has its own buffer, and this rank owns one part of each, which it
// measures, clips and updates. A transient bucket exists from its first gradient of a window until
// it is released; then only the parts are kept. A hook on each parameter records whether backward
// reached it, so that the optimizer skips a parameter without gradient, as in torch, although its
// buffer exists. A .grad that was replaced (Module::zero_grad sets it to none) is put back into its
// place, with its value at that time.
#pragma once

#include "tanren/parallel/flat_layout.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace tanren {

struct Sharding {
  int64_t rank = 0;           // among the ranks that hold the same weights, or share them
  LayoutOptions layout = {};  // layout.parts: number of ranks that share; 1: each has all
  bool transient = false;     // whole buckets live no longer than they must

  bool on() const { return layout.parts > 1; }
};

class Gradients {
 public:
  // Takes over .grad of every parameter (leaves that require grad, dense layout; Error otherwise).
  // A gradient has its parameter's grad_dtype.
  explicit Gradients(std::vector<at::Tensor> parameters, const Sharding& sharding = {});
  ~Gradients();
  Gradients(Gradients&&) noexcept;
  Gradients& operator=(Gradients&&) noexcept;

  // Before a window: zeroes in place and forgets which gradients have fired.
  void zero();
  // Makes every .grad its view again. One that was set to none becomes 0, which is what the code
  // that set it expects. Code that reads gradients must call this first.
  void reattach() const;
  // Before a microstep of the window: forgets which gradients fired in the microstep before.
  void begin_microstep();
  // The first parameter whose gradient is not as begin_microstep() found it: a backward has reached
  // it, or other code replaced it, set it to none or wrote to it. A write can be traced only to a
  // flat tensor: then `parameter` is the first one of that tensor and `is_this_one` is false.
  struct Change {
    size_t parameter = 0;
    bool is_this_one = true;
  };
  std::optional<Change> first_change() const;
  // Notes that a sum over ranks has begun: other ranks' threads may write to the tensors until
  // zero().
  void note_sent() { is_sent_ = true; }
  // Whether the parameter's gradient of this microstep is complete.
  bool fired_in_microstep(const at::Tensor& parameter) const;
  // One flat tensor per dtype; together exactly the gradients, without gaps. If ranks share the
  // gradients: one per bucket that is not transient, with zeros as padding.
  const std::vector<at::Tensor>& flat() const {
    reattach();
    return flat_;
  }
  // The gradients that this rank measures and updates after the reduction: flat() or, if ranks
  // share the state, its parts of the buckets.
  const std::vector<at::Tensor>& owned() const {
    reattach();
    return sharding_.on() ? parts_ : flat_;
  }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // Per parameter, whether backward has reached it since zero(). Null when all were reached.
  const std::vector<uint8_t>* active() const;
  // Sets what active() returns until zero(): which gradients some rank has reached.
  void set_active(const std::vector<uint8_t>& flags);
  // Sets `told`, which is called with a parameter's index each time backward has added to its
  // gradient, on backward's thread. Empty: no calls. An exception from it ends that backward.
  void on_fired(std::function<void(size_t)> told);
  // The place of parameter `index`'s gradient: elements [offset, offset + numel) of flat()[buffer].
  struct Place {
    size_t buffer = 0;
    int64_t offset = 0, numel = 0;
  };
  Place place(size_t index) const;
  // The whole gradient of parameter `index`, 1-dim, in the order of the parameter's memory. A
  // transient bucket that no gradient has reached is made, with zeros. Do not call it after
  // release().
  at::Tensor whole(size_t index);
  // Index of the first parameter whose gradient is not finite, or -1. If ranks share the gradients,
  // it checks only this rank's parts. Reads the device.
  int64_t first_non_finite() const;

  const Sharding& sharding() const { return sharding_; }
  // The functions below are only for gradients that ranks share.
  const FlatLayout& layout() const { return layout_; }
  const std::vector<Slice>& slices() const { return slices_; }
  // The gradient of a slice: a view of owned(), always of the same memory.
  at::Tensor slice_gradient(const Slice& slice) const;
  // The whole bucket; a transient one that no gradient has reached is made, with zeros.
  at::Tensor bucket(size_t index);
  const at::Tensor& part(size_t index) const { return parts_[index]; }
  // Call this when the bucket is reduced: a transient one is freed, and with it the .grad of its
  // parameters.
  void release(size_t index);

 private:
  struct Fired;
  struct Buckets;
  struct Views;
  class Hook;
  void make_flat();
  void make_buckets();
  // The version counter of each flat tensor or transient bucket; -1: not allocated. Each write
  // raises it.
  std::vector<int64_t> versions() const;

  std::vector<at::Tensor> parameters_;
  Sharding sharding_;
  FlatLayout layout_;
  std::vector<at::Tensor> flat_;
  std::vector<at::Tensor> parts_;
  std::vector<Slice> slices_;
  std::vector<Place> places_;
  std::vector<int64_t> versions_;  // when the microstep began
  bool is_sent_ = false;
  std::shared_ptr<Fired> fired_;
  std::shared_ptr<Buckets> buckets_;  // null: not transient
  std::shared_ptr<Views> views_;      // null: transient
};

}  // namespace tanren
