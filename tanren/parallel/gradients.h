// Gradients: the persistent gradient storage of one objective. Each parameter's .grad is a view,
// with the parameter's own sizes and strides, into one flat buffer per dtype: zeroing, unscaling,
// measuring and reducing are one operation each, and backward never allocates.
// A hook on each parameter records whether backward reached it, so that a parameter without
// gradient is skipped by the optimizer, as in torch, although its buffer exists.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tanren {

class Gradients {
 public:
  // Takes over .grad of every parameter (leaves that require grad, dense layout; Error otherwise).
  explicit Gradients(std::vector<at::Tensor> parameters);
  ~Gradients();
  Gradients(Gradients&&) noexcept;
  Gradients& operator=(Gradients&&) noexcept;

  // Before a window: zero in place, nothing fired.
  void zero();
  // Before a microstep of it: nothing has fired in it yet.
  void begin_microstep();
  // Whether the parameter's gradient of this microstep is complete.
  bool fired_in_microstep(const at::Tensor& parameter) const;
  // One flat tensor per dtype; together exactly the gradients, without gaps.
  const std::vector<at::Tensor>& flat() const { return flat_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // Per parameter, whether backward has reached it since zero(). Null when all were reached.
  const std::vector<uint8_t>* active() const;
  // What active() says from now until zero(): which gradients some rank has reached.
  void set_active(const std::vector<uint8_t>& flags);
  // Called with a parameter's index each time backward has added to its gradient, on the thread that
  // did; empty: nobody is. What it throws ends that backward.
  void on_fired(std::function<void(size_t)> told);
  // Where the gradient of parameter `index` lies: elements [offset, offset + numel) of flat()[buffer].
  struct Place {
    size_t buffer = 0;
    int64_t offset = 0, numel = 0;
  };
  Place place(size_t index) const;
  // Index of the first parameter whose gradient is not finite, or -1. Reads the device.
  int64_t first_non_finite() const;

 private:
  struct Fired;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> flat_;
  std::vector<Place> places_;
  std::shared_ptr<Fired> fired_;
};

}  // namespace tanren
