// Every copy from and to a device comes through aten::_copy_from.
#include "tests/support/accelerator/simulator.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <torch/library.h>

namespace tanren::sim {

namespace {

// As CUDA: the copy runs on the source's stream, and both streams wait for each other.
void copy_on_devices(const at::Tensor& from, const at::Tensor& to) {
  const int source = current_stream(from.device().index());
  const int target = current_stream(to.device().index());
  order(target, source);
  launch(source, "copy", {use_of(from, false), use_of(to, true)},
         [&] { inside(to).copy_(inside(from)); });
  order(source, target);
}

// From pageable memory the bytes are taken at once. The host waits if the caller wants the copy.
void upload(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const int stream = current_stream(to.device().index());
  const bool pinned = from.numel() > 0 && is_pinned(from.const_data_ptr());
  if (pinned) deliver_to(stream, from);
  launch(stream, "copy to the device", {use_of(to, true)}, [&] { inside(to).copy_(from); });
  if (!non_blocking) {
    wait_for({stream}, &Counts::uploads);
  } else if (pinned) {
    watch_upload(stream, from);
  }
}

void download(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const int stream = current_stream(from.device().index());
  const bool later =
      non_blocking && to.is_non_overlapping_and_dense() && is_pinned(to.const_data_ptr());
  at::Tensor values = later ? at::empty_strided(to.sizes(), to.strides(), to.dtype()) : to;
  launch(stream, "copy to the host", {use_of(from, false)}, [&] { values.copy_(inside(from)); });
  if (later) {
    deliver_later(stream, to, values);
  } else {
    wait_for({stream}, &Counts::downloads);
  }
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  if (is_here(from) && is_here(to)) {
    copy_on_devices(from, to);
  } else if (is_here(to)) {
    upload(from, to, non_blocking);
  } else {
    download(from, to, non_blocking);
  }
  return to;
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  const at::Tensor value = at::empty(tensor.sizes(), at::TensorOptions(tensor.dtype()));
  download(tensor, value, /*non_blocking=*/false);
  return value.item();
}

void record_stream(at::Tensor& tensor, c10::Stream stream) {
  allocator().recordStream(tensor.storage().data_ptr(), stream);
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                 std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::Device(kSim, index_of(device.value_or(c10::Device(kSim)))));
  return at::detail::empty_generic(sizes, &allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> /*layout*/,
                         std::optional<at::Device> device, std::optional<bool> /*pinned*/) {
  return new_tensor(index_of(device.value_or(c10::Device(kSim))), sizes, strides,
                    c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<at::MemoryFormat> format) {
  const auto bytes = at::detail::computeStorageNbytesContiguous(
      sizes, self.element_size(), static_cast<size_t>(self.storage_offset()));
  if (bytes > self.storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(self.storage(), bytes);
  }
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

}  // namespace

void register_copies() {
  static auto* const library = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("_copy_from", &copy_from);
  library->impl("_local_scalar_dense", &local_scalar_dense);
  library->impl("record_stream", &record_stream);
  library->impl("empty.memory_format", &empty);
  library->impl("empty_strided", &empty_strided);
  library->impl("resize_", &resize_);
}

}  // namespace tanren::sim
