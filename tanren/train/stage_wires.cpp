#include "tanren/train/stage_wires.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/memory_tag.h"
#include "tanren/base/text.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <sstream>
#include <utility>

namespace tanren {

namespace {

constexpr size_t kMostDims = 16;
constexpr int64_t kHeaderSize = 2 + 2 * static_cast<int64_t>(kMostDims);

// The sizes of all fields, with their numbers of dims.
std::vector<int64_t> key_of(const Batch& piece) {
  std::vector<int64_t> key;
  for (const auto& [name, field] : piece.fields) {
    key.push_back(field.dim());
    key.insert(key.end(), field.sizes().begin(), field.sizes().end());
  }
  return key;
}

int64_t numel_of(const WireShape& shape) { return c10::multiply_integers(shape.sizes); }

at::Tensor empty_as(const WireShape& shape, at::Device device) {
  return at::empty_strided(shape.sizes, shape.strides,
                           at::TensorOptions(shape.dtype).device(device));
}

// The tensor of this shape in the first elements of a row.
at::Tensor tensor_in(const at::Tensor& row, const WireShape& shape) {
  return row.as_strided(shape.sizes, shape.strides);
}

// All elements in the order of memory.
at::Tensor row_of(const at::Tensor& tensor) {
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

// The elements of `tensor` in the order of memory of `shape`.
at::Tensor row_as(const at::Tensor& tensor, const WireShape& shape) {
  const bool fits = tensor.strides() == shape.strides && tensor.scalar_type() == shape.dtype;
  if (fits) return row_of(tensor);
  const at::Tensor laid = empty_as(shape, tensor.device());
  laid.copy_(tensor.detach());
  return row_of(laid);
}

// A gradient's elements in the order of memory of `shape`, and 1; if it is undefined, zeros.
at::Tensor gradient_row(const at::Tensor& gradient, const WireShape& shape, at::Device device) {
  const int64_t numel = numel_of(shape);
  const auto options = at::TensorOptions(shape.dtype).device(device);
  if (!gradient.defined()) return at::zeros({numel + 1}, options);
  at::Tensor row = at::empty({numel + 1}, options);
  tensor_in(row, shape).copy_(gradient.detach());
  row.narrow(0, numel, 1).fill_(1);
  return row;
}

at::Tensor header_of(const WireShape& shape) {
  std::vector<int64_t> numbers = {static_cast<int64_t>(shape.dtype),
                                  static_cast<int64_t>(shape.sizes.size())};
  numbers.insert(numbers.end(), shape.sizes.begin(), shape.sizes.end());
  numbers.insert(numbers.end(), shape.strides.begin(), shape.strides.end());
  numbers.resize(static_cast<size_t>(kHeaderSize), 0);
  return at::tensor(numbers, at::kLong);
}

WireShape shape_in(const at::Tensor& header) {
  const at::Tensor host = header.to(at::kCPU);
  const auto* number = host.const_data_ptr<int64_t>();
  const int64_t dims = number[1];
  return {.dtype = static_cast<at::ScalarType>(number[0]),
          .sizes = {number + 2, number + 2 + dims},
          .strides = {number + 2 + dims, number + 2 + 2 * dims}};
}

std::string shape_text(const WireShape& shape) {
  std::ostringstream text;
  text << c10::toString(shape.dtype) << " " << at::IntArrayRef(shape.sizes);
  return text.str();
}

}  // namespace

WireShape shape_on_wire(const at::Tensor& tensor) {
  const auto contiguous = c10::contiguous_strides(tensor.sizes());
  const at::IntArrayRef strides =
      tensor.is_non_overlapping_and_dense() ? tensor.strides() : at::IntArrayRef(contiguous);
  return {.dtype = tensor.scalar_type(), .sizes = tensor.sizes().vec(), .strides = strides.vec()};
}

void StageWires::Receive::post() {
  Communicator& comm = wires_->pipeline_;
  if (is_gradient()) {
    row_ =
        at::empty({numel_of(shape_) + 1}, at::TensorOptions(shape_.dtype).device(wires_->device_));
    tensor_ = tensor_in(row_, shape_);
  } else {
    tensor_ = empty_as(shape_, wires_->device_);
    row_ = row_of(tensor_);
  }
  carried_ = row_;
  const at::Device device = comm.device_for(row_.device());
  if (device != row_.device()) carried_ = at::empty_like(row_, row_.options().device(device));
  work_ = comm.start_receive(carried_, static_cast<int>(from_), what_);
}

void StageWires::Receive::settle() {
  if (!header_.defined()) return;
  work_->wait_on_host();
  shape_ = shape_in(header_);
  wires_->known_.received[key_] = shape_;
  header_.reset();
  post();
}

at::Tensor StageWires::Receive::wait() {
  settle();
  work_->wait();
  if (is_gradient()) {
    wires_->drop_outputs(microbatch_);
    const at::Tensor is_there = carried_.narrow(0, numel_of(shape_), 1);
    if (read_to_host(at::real(is_there))[0] == 0) return {};
  }
  if (carried_.device() != row_.device()) row_.copy_(carried_);
  return std::move(tensor_);
}

StageWires::Receive StageWires::start_input(const Batch& piece, int64_t microbatch) {
  Receive receive(*this, plan_.stage - 1, microbatch,
                  fmt::format("the input of microbatch {}", microbatch));
  receive.key_ = key_of(piece);
  const auto known = known_.received.find(receive.key_);
  if (known != known_.received.end()) {
    receive.shape_ = known->second;
    receive.post();
    return receive;
  }
  const auto options = at::TensorOptions(at::kLong).device(pipeline_.device_for(at::kCPU));
  receive.header_ = at::empty({kHeaderSize}, options);
  receive.work_ =
      pipeline_.start_receive(receive.header_, static_cast<int>(receive.from_),
                              fmt::format("the shape of the input of microbatch {}", microbatch));
  return receive;
}

StageWires::Receive StageWires::start_gradient(const WireShape& output, int64_t microbatch) {
  Receive receive(*this, plan_.stage + 1, microbatch,
                  fmt::format("the gradient of microbatch {}", microbatch));
  receive.shape_ = output;
  receive.post();
  return receive;
}

void StageWires::keep(std::deque<Sent>& sent, size_t most) {
  for (; sent.size() > most; sent.pop_front()) sent.front().work->wait();
}

void StageWires::drop_outputs(int64_t microbatch) {
  while (!to_next_.empty() && to_next_.front().microbatch <= microbatch) {
    keep(to_next_, to_next_.size() - 1);
  }
}

void StageWires::send(const at::Tensor& header, const at::Tensor& row, int64_t to,
                      int64_t microbatch, const std::string& what) {
  const int rank = static_cast<int>(to);
  const auto carried = [&](const at::Tensor& own) {
    return own.to(pipeline_.device_for(own.device()));
  };
  auto& sent = to > plan_.stage ? to_next_ : to_previous_;
  if (to > plan_.stage) {
    // Messages older than the pipeline is long have normally arrived. If not, this stage must wait.
    keep(sent, 2 * static_cast<size_t>(plan_.stages()));
  } else {
    // The previous stage has normally received all gradients but the last. If not, it is the slower
    // one, and this stage waits.
    keep(sent, 1);
  }
  if (header.defined()) {
    const at::Tensor ahead = carried(header);
    auto work = pipeline_.post_send(ahead, rank, "the shape of " + what);
    sent.push_back({microbatch, ahead, std::move(work)});
  }
  const at::Tensor own = carried(row);
  auto work = pipeline_.start_send(own, rank, what);
  sent.push_back({microbatch, own, std::move(work)});
}

WireShape StageWires::send_output(const at::Tensor& output, const Batch& piece,
                                  int64_t microbatch) {
  const at::NoGradGuard no_grad;
  const WireShape shape = shape_on_wire(output);
  const std::string& block = plan_.blocks.blocks[plan_.blocks.end - 1];
  if (shape.sizes.size() > kMostDims) {
    throw ConfigError(
        fmt::format("[pipeline] the output of block '{}' has {} dims; at most {} are "
                    "sent to the next stage",
                    block, shape.sizes.size(), kMostDims));
  }
  const auto [known, is_new] = known_.sent.emplace(key_of(piece), shape);
  const WireShape& agreed = known->second;
  if (agreed.sizes != shape.sizes || agreed.dtype != shape.dtype) {
    throw ConfigError(fmt::format(
        "[pipeline] block '{}', the last of stage {} of {}, returned {} for "
        "microbatch {} and {} for an earlier one with fields of the same shapes; cut "
        "the model where an output's shape follows from the batch's (parallel.cut_at)",
        block, plan_.stage + 1, plan_.stages(), shape_text(shape), microbatch, shape_text(agreed)));
  }
  send(is_new ? header_of(shape) : at::Tensor(), row_as(output, agreed), plan_.stage + 1,
       microbatch, fmt::format("the input of microbatch {}", microbatch));
  return agreed;
}

void StageWires::send_gradient(const at::Tensor& gradient, const at::Tensor& input,
                               int64_t microbatch) {
  const at::NoGradGuard no_grad;
  const MemoryScope memory(MemoryKind::temporaries);
  send({}, gradient_row(gradient, shape_on_wire(input), input.device()), plan_.stage - 1,
       microbatch, fmt::format("the gradient of microbatch {}", microbatch));
}

void StageWires::finish() {
  keep(to_next_, 0);
  keep(to_previous_, 0);
}

}  // namespace tanren
