// Operators that no CPU kernel computes for a device: views, those that only devices have, rows of
// sparse gradients, and CUDA's lists of casts.
#include "tests/support/accelerator/simulator.h"

#include <ATen/ATen.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_reshape_alias_cpu_dispatch.h>
#include <ATen/ops/as_strided_cpu_dispatch.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/unfold_cpu_dispatch.h>
#include <ATen/ops/view_cpu_dispatch.h>
#include <torch/library.h>

#include <tuple>

namespace tanren::sim {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool shallow_copies_fit(const at::Tensor& /*self*/, const at::Tensor& /*from*/) { return true; }

// x, the probability of a zero → x with zeros, scaled; the mask.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& x, double p,
                                                  std::optional<bool> /*train*/) {
  const at::Tensor mask = at::empty_like(x, x.options().dtype(at::kBool)).bernoulli_(1 - p);
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  return {at::native_dropout_backward(x, mask, scale), mask};
}

// The gates of one LSTM step, [batch, 4 × hidden]: input, forget, cell, output.
struct Gates {
  explicit Gates(const at::Tensor& all) {
    const auto parts = all.chunk(4, 1);
    in = parts[0];
    forget = parts[1];
    cell = parts[2];
    out = parts[3];
  }
  at::Tensor in, forget, cell, out;
};

// → hidden, cell, and the gates after their functions, for backward.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& of_input,
                                                         const at::Tensor& of_hidden,
                                                         const at::Tensor& cell_before,
                                                         const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  at::Tensor sums = of_input + of_hidden;
  if (input_bias && input_bias->defined()) sums = sums + *input_bias + *hidden_bias;
  Gates gates(sums);
  const at::Tensor in = gates.in.sigmoid(), forget = gates.forget.sigmoid();
  const at::Tensor update = gates.cell.tanh(), out = gates.out.sigmoid();
  const at::Tensor cell = forget * cell_before + in * update;
  return {out * cell.tanh(), cell, at::cat({in, forget, update, out}, 1)};
}

// → the gradients of the gates' sums, of the cell before, and of each bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(
    const OptionalTensor& of_hidden, const OptionalTensor& of_cell, const at::Tensor& cell_before,
    const at::Tensor& cell, const at::Tensor& workspace, bool has_bias) {
  const Gates gates(workspace);
  const at::Tensor bent = cell.tanh();
  const at::Tensor hidden = of_hidden && of_hidden->defined() ? *of_hidden : at::zeros_like(cell);
  at::Tensor d_cell = hidden * gates.out * (1 - bent * bent);
  if (of_cell && of_cell->defined()) d_cell = d_cell + *of_cell;
  const at::Tensor d_gates = at::cat({d_cell * gates.cell * gates.in * (1 - gates.in),
                                      d_cell * cell_before * gates.forget * (1 - gates.forget),
                                      d_cell * gates.in * (1 - gates.cell * gates.cell),
                                      hidden * bent * gates.out * (1 - gates.out)},
                                     1);
  return {d_gates, d_cell * gates.forget, has_bias ? d_gates.sum(0) : at::Tensor()};
}

// Attention without a fused kernel.
int64_t sdp_choice(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptionalTensor&,
                   double, bool, std::optional<double>, bool) {
  return 0;  // math
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides,
                      std::optional<int64_t> offset) {
  return at::cpu::as_strided(self, sizes, strides, offset);
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef sizes) {
  return at::cpu::view(self, sizes);
}
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::cpu::_reshape_alias(self, sizes, strides);
}
at::Tensor unfold(const at::Tensor& self, int64_t dim, int64_t size, int64_t step) {
  return at::cpu::unfold(self, dim, size, step);
}
at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  return at::cpu::set_(self, std::move(storage));
}
at::Tensor& set_part(at::Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef sizes,
                     at::IntArrayRef strides) {
  return at::cpu::set_(self, std::move(storage), offset, sizes, strides);
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return at::cpu::set_(self, source);
}

// Adds the rows of an embedding's sparse gradient to a dense tensor.
at::Tensor& add_rows_(at::Tensor& self, const at::Tensor& rows, const at::Scalar& alpha) {
  TORCH_CHECK(!self.is_sparse() && rows.sparse_dim() == 1, "only rows are added to a dense tensor");
  return self.index_add_(0, rows._indices()[0], rows._values(), alpha);
}
at::Tensor add_rows(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  at::Tensor sum = self.is_sparse() ? other * alpha : self.clone();
  return self.is_sparse() ? add_rows_(sum, self, 1) : add_rows_(sum, other, alpha);
}

void register_sparse() {
  static auto* const sparse = new torch::Library(
      torch::Library::IMPL, "aten", c10::DispatchKey::SparsePrivateUse1, __FILE__, __LINE__);
  sparse->impl("_sparse_coo_tensor_with_dims_and_tensors",
               &at::native::new_with_dims_and_tensor_sparse_symint);
  sparse->impl("_indices", &at::native::_indices_sparse);
  sparse->impl("_values", &at::native::_values_sparse);
  sparse->impl("_nnz", &at::native::_nnz_sparse);
  sparse->impl("sparse_dim", &at::native::sparse_dim_sparse);
  sparse->impl("dense_dim", &at::native::dense_dim_sparse);
  sparse->impl("is_coalesced", &at::native::is_coalesced_sparse);
  sparse->impl("_coalesced_", &at::native::_coalesced_sparse_);
  sparse->impl("add_.Tensor", &add_rows_);
  sparse->impl("add.Tensor", &add_rows);
}

}  // namespace

void register_other_operators() {
  static auto* const aten = new torch::Library(torch::Library::IMPL, "aten",
                                               c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  aten->impl("as_strided", &as_strided);
  aten->impl("view", &view);
  aten->impl("_reshape_alias", &reshape_alias);
  aten->impl("unfold", &unfold);
  aten->impl("set_.source_Storage", &set_storage);
  aten->impl("set_.source_Storage_storage_offset", &set_part);
  aten->impl("set_.source_Tensor", &set_tensor);
  aten->impl("_has_compatible_shallow_copy_type", &shallow_copies_fit);
  aten->impl("native_dropout", &native_dropout);
  aten->impl("_thnn_fused_lstm_cell", &lstm_cell);
  aten->impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  register_sparse();
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&sdp_choice);
}

}  // namespace tanren::sim

// Autocast by CUDA's lists. Without mixed precision every operator falls through.
namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define TANREN_SIM_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TANREN_SIM_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TANREN_SIM_FP32_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TANREN_SIM_WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(TANREN_SIM_LOWER)
  AT_FORALL_FP32(TANREN_SIM_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TANREN_SIM_FP32_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(TANREN_SIM_WIDEST)
}

}  // namespace at::autocast
