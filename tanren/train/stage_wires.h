// StageWires: what a stage sends to its neighbours and receives from them: the outputs of its
// blocks and the gradients of its input, microbatch by microbatch, with the sender's strides. Both
// ends know a tensor's shape from the first microbatch with the same shapes of fields, for which a
// small message goes ahead. A gradient has one more element, which says whether there is one: to
// know it, the host waits for the message, also on a device. Invariant: in each direction between
// two stages messages are received in the order in which they are sent, which is that of the
// microbatches. On the step's thread. Called by pipeline and staged_forward.
#pragma once

#include "tanren/base/batch.h"
#include "tanren/comm/communicator.h"
#include "tanren/train/stage_plan.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

namespace tanren {

// A dense tensor as it lies in memory.
struct WireShape {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes, strides;

  bool has_gradient() const { return at::isFloatingType(dtype) || at::isComplexType(dtype); }
  bool operator==(const WireShape&) const = default;
};

// The shape in which `tensor` is sent. A tensor with gaps or overlaps in memory is sent as
// contiguous.
WireShape shape_on_wire(const at::Tensor& tensor);

// Shapes that both ends know, by the shapes of a microbatch's fields. They stay known as long as
// the same forward is made.
struct KnownShapes {
  std::map<std::vector<int64_t>, WireShape> received, sent;
};

class StageWires {
 public:
  // A tensor that this stage is receiving. wait() may be called once, and before the next receive
  // from the same stage starts.
  class Receive {
   public:
    // The tensor: dense, new, without a gradient; undefined for the gradient of an output that no
    // backward reached.
    at::Tensor wait();

   private:
    friend class StageWires;
    Receive(StageWires& wires, int64_t from, int64_t microbatch, std::string what)
        : wires_(&wires), from_(from), microbatch_(microbatch), what_(std::move(what)) {}
    bool is_gradient() const { return from_ > wires_->plan_.stage; }
    void post();
    void settle();  // waits for the shape if it is not known

    StageWires* wires_;
    int64_t from_;  // stage
    int64_t microbatch_;
    std::string what_;
    std::vector<int64_t> key_;  // of an input
    at::Tensor header_;         // undefined once the shape is known
    at::Tensor tensor_, row_;   // row_: all elements of the message, of which tensor_ is a part
    at::Tensor carried_;        // row_, or its place on the engine's device
    WireShape shape_;
    Communicator::Work work_;
  };

  // All outlive it. `pipeline`: the stages of this replica.
  StageWires(const StagePlan& plan, Communicator& pipeline, at::Device device, KnownShapes& known)
      : plan_(plan), pipeline_(pipeline), device_(device), known_(known) {}

  // The input for `piece`, from the stage before.
  Receive start_input(const Batch& piece, int64_t microbatch);
  // The gradient of an output of this shape, from the next stage.
  Receive start_gradient(const WireShape& output, int64_t microbatch);
  // Sends the output to the next stage. Returns the shape sent, with the strides of the first
  // microbatch whose fields had the same shapes. Throws ConfigError if the output's sizes or dtype
  // differ from that one's.
  WireShape send_output(const at::Tensor& output, const Batch& piece, int64_t microbatch);
  // Sends the gradient, which may be undefined, to the previous stage. `input`: the tensor received
  // from there.
  void send_gradient(const at::Tensor& gradient, const at::Tensor& input, int64_t microbatch);
  // Waits until everything that was sent has arrived.
  void finish();

 private:
  struct Sent {
    int64_t microbatch;
    at::Tensor row;
    Communicator::Work work;
  };
  // Waits for the oldest messages until at most `most` are left.
  static void keep(std::deque<Sent>& sent, size_t most);
  // Frees the outputs up to that of `microbatch`, because the next stage has received them.
  void drop_outputs(int64_t microbatch);
  // `header`: goes ahead of `row`; may be undefined.
  void send(const at::Tensor& header, const at::Tensor& row, int64_t to, int64_t microbatch,
            const std::string& what);

  const StagePlan& plan_;
  Communicator& pipeline_;
  at::Device device_;
  KnownShapes& known_;
  std::deque<Sent> to_next_, to_previous_;
};

}  // namespace tanren
