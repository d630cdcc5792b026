#include "tanren/dry/dry_convolution.h"

#include "tanren/base/text.h"
#include "tanren/dry/arguments.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/dry/real_scope.h"
#include "tanren/dry/trace_scope.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace tanren {
namespace {

using Sizes = std::vector<int64_t>;
using Mask = std::array<bool, 3>;  // gradients of input, weight, bias

// Multiply-adds of the largest convolution that is run in its full size: some milliseconds.
constexpr int64_t kMostTried = int64_t{64} << 20;

at::MemoryFormat format_of(bool last) {
  return last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

// torch accepts one number for all directions.
Sizes spatial(const c10::IValue& value, size_t dims = 2) {
  Sizes list = value.toIntVector();
  if (list.size() == 1) list.resize(dims, list[0]);
  return list;
}

// The order in which a device computes: channels last if one of both lies so.
at::MemoryFormat device_format(const at::Tensor& input, const at::Tensor& weight) {
  constexpr auto kNhwc = at::MemoryFormat::ChannelsLast;
  const bool last = input.dim() == 4 && (input.suggest_memory_format() == kNhwc ||
                                         weight.suggest_memory_format() == kNhwc);
  return format_of(last);
}

// One call of a oneDNN convolution. The tensors are used for their shapes and strides alone.
struct Call {
  at::Tensor input, weight;
  at::Tensor gradient;  // of the output; undefined: forward
  Sizes stride, padding, dilation;
  int64_t groups;
  bool bias;
  Mask wanted = {};

  Sizes output_sizes() const {
    return at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  }
  int64_t out(size_t direction) const { return output_sizes()[direction + 2]; }
  // Rows of input that `rows` rows of output need.
  int64_t rows_for(int64_t rows) const { return input.size(2) - (out(0) - rows) * stride[0]; }
  int64_t multiply_adds_per_row() const { return out(1) * weight.numel(); }
};

// Zeros with the layout of `like`, but for `samples` samples and `rows` rows.
at::Tensor zeros_like(const at::Tensor& like, int64_t samples, int64_t rows) {
  Sizes sizes = like.sizes().vec(), strides = like.strides().vec();
  const int64_t before = sizes[2];
  sizes[0] = samples;
  sizes[2] = rows;
  for (const size_t dim : {0, 1}) {  // strides that span whole planes
    if (strides[dim] % before == 0 && strides[dim] > 1) strides[dim] = strides[dim] / before * rows;
  }
  return at::empty_strided(sizes, strides, like.options().device(at::kCPU)).zero_();
}

// The memory that the kernel takes for `samples` samples and `rows` rows of output.
MemoryTrace tried(const Call& call, int64_t samples, int64_t rows) {
  const RealScope real;
  const TraceScope unseen;  // the operands of the trial are not part of the step
  const at::Tensor input = zeros_like(call.input, samples, call.rows_for(rows));
  const at::Tensor weight = at::empty_strided(call.weight.sizes(), call.weight.strides(),
                                              call.weight.options().device(at::kCPU))
                                .zero_();
  if (!call.gradient.defined()) {
    const at::Tensor bias = at::zeros({weight.size(0)}, weight.options());
    const TraceScope tracing;
    const at::Tensor result = at::mkldnn_convolution(
        input, weight, call.bias ? std::optional<at::Tensor>(bias) : std::nullopt, call.padding,
        call.stride, call.dilation, call.groups);
    return tracing.trace();
  }
  const at::Tensor gradient = zeros_like(call.gradient, samples, rows);
  const Sizes bias = {weight.size(0)};
  const TraceScope tracing;
  const auto results = at::convolution_backward(
      gradient, input, weight, call.bias ? at::OptionalIntArrayRef(bias) : std::nullopt,
      call.stride, call.padding, call.dilation, false, {0, 0}, call.groups, call.wanted);
  return tracing.trace();
}

bool are_alike(const MemoryTrace& a, const MemoryTrace& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.tensor == y.tensor && (x.bytes > 0) == (y.bytes > 0);
  });
}

// Whether torch uses oneDNN's kernel for `samples` samples and `rows` rows of output.
bool is_onednn(const Call& call, int64_t samples, int64_t rows) {
  const auto symbols = [](const Sizes& list) {
    return std::vector<c10::SymInt>(list.begin(), list.end());
  };
  const at::Tensor input = call.input.narrow(0, 0, samples).narrow(2, 0, call.rows_for(rows));
  const std::vector<c10::SymInt> bias = {call.weight.size(0)};
  return at::native::select_conv_backend(
             input, call.weight, std::nullopt, symbols(call.stride), symbols(call.padding),
             symbols(call.dilation), /*transposed=*/false, symbols({0, 0}), call.groups,
             call.bias ? at::OptionalSymIntArrayRef(bias) : std::nullopt) ==
         at::native::ConvBackend::Mkldnn;
}

// The smaller convolutions from which a large one is extrapolated: with `samples` samples and with
// twice as many, each with `low` and with `high` rows of output.
struct Smaller {
  int64_t samples, low, high;
  bool all_samples;

  int64_t rows() const {
    return (all_samples ? samples : 3 * samples) * (low == high ? low : low + high);
  }
};

Smaller smaller_than(const Call& call, int64_t affordable) {
  const int64_t all = call.input.size(0), rows = call.out(0);
  // Each thread takes scratch memory for its own samples, so every thread gets the same number.
  int64_t samples = std::max<int64_t>(at::get_num_threads(), 2);
  if (all <= 2 * samples) samples = all;
  // oneDNN computes in another way if the kernel reaches over more rows than the input has.
  const int64_t reach = call.dilation[0] * (call.weight.size(2) - 1) + 1;
  const int64_t spare = std::max<int64_t>(call.input.size(2) - reach, 0) / call.stride[0];
  int64_t low = std::clamp<int64_t>(rows - spare, std::min<int64_t>(rows, 2), rows);
  while (samples < all && !is_onednn(call, samples, low)) {
    samples = 4 * samples < all ? 2 * samples : all;
  }
  while (low < rows && !is_onednn(call, samples, low)) low = std::min(2 * low, rows);
  const bool all_samples = samples == all;
  const int64_t most = affordable / (all_samples ? samples : 2 * samples);
  const int64_t high = std::min(std::max(most, 2 * low), rows);
  return {samples, high == rows ? high : high / 2, high, all_samples};
}

// Extrapolates linearly in samples and in rows. No value: the smaller convolutions do not make the
// same sequence of allocations.
std::optional<MemoryTrace> extrapolated(const Call& call, const Smaller& by) {
  const double samples = static_cast<double>(call.input.size(0)) / static_cast<double>(by.samples);
  const auto rows = static_cast<double>(call.out(0) - by.low);
  const int64_t more = by.all_samples ? by.samples : 2 * by.samples;
  MemoryTrace base = tried(call, by.samples, by.low);
  const bool flat = by.low == by.high;
  const MemoryTrace higher = flat ? base : tried(call, by.samples, by.high);
  const MemoryTrace wider = by.all_samples ? base : tried(call, more, by.low);
  const MemoryTrace both = flat || by.all_samples ? wider : tried(call, more, by.high);
  if (!are_alike(base, higher) || !are_alike(base, wider) || !are_alike(base, both)) return {};
  for (size_t i = 0; i < base.size(); ++i) {
    const auto grown = [&](const MemoryTrace& low, const MemoryTrace& high) {
      const auto from = static_cast<double>(low[i].bytes), to = static_cast<double>(high[i].bytes);
      return flat ? from : from + (to - from) / static_cast<double>(by.high - by.low) * rows;
    };
    const double few = grown(base, higher);
    const double bytes =
        by.all_samples ? few : few + (grown(wider, flat ? wider : both) - few) * (samples - 1);
    // The signs stay: an allocation remains an allocation and a release a release.
    base[i].bytes = base[i].bytes > 0 ? std::max<int64_t>(std::llround(bytes), 1)
                                      : std::min<int64_t>(std::llround(bytes), -1);
  }
  return base;
}

// The whole convolution runs if the smaller ones together would cost at least half as much.
MemoryTrace found(const Call& call) {
  const int64_t samples = call.input.size(0), rows = call.out(0);
  const int64_t affordable = kMostTried / call.multiply_adds_per_row();
  if (samples * rows <= affordable) return tried(call, samples, rows);
  Smaller by = smaller_than(call, affordable);
  while (samples * rows > 2 * by.rows()) {
    if (const auto trace = extrapolated(call, by)) return *trace;
    by.high = std::min(2 * by.high, rows);
    by.low = by.high == rows ? by.high : by.high / 2;
  }
  return tried(call, samples, rows);
}

// The memory that the kernel takes. Each shape is tried once per process.
const MemoryTrace& taken(const Call& call) {
  static std::mutex mutex;
  static std::map<std::string, MemoryTrace> known;
  const auto layout = [](const at::Tensor& t) {
    return t.defined() ? fmt::format("{}:{}", t.sizes(), t.strides()) : "";
  };
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", layout(call.input), layout(call.weight),
                  layout(call.gradient), call.stride, call.padding, call.dilation, call.groups,
                  call.bias, call.wanted, static_cast<int>(call.input.scalar_type()),
                  static_cast<int>(call.weight.scalar_type()), at::get_num_threads());
  const std::lock_guard lock(mutex);
  const auto before = known.find(key);
  if (before != known.end()) return before->second;
  return known.emplace(key, found(call)).first->second;
}

struct Shape {
  Sizes sizes;
  at::MemoryFormat format;
};

// Repeats the allocations and releases of `call`. The tensors that remain are the results, of these
// shapes.
std::vector<at::Tensor> repeated(const Call& call, const std::vector<Shape>& shapes) {
  std::vector<at::Tensor> results(shapes.size());
  const auto options = call.input.options();
  const MemoryTrace& trace = taken(call);
  std::map<uint32_t, at::Tensor> scratch;
  std::map<uint32_t, int64_t> lasting;
  for (const auto& event : trace) lasting[event.tensor] += event.bytes;
  for (const auto& event : trace) {
    if (event.bytes < 0) {
      scratch.erase(event.tensor);
      continue;
    }
    bool taken_as_result = false;
    for (size_t i = 0; i < shapes.size() && lasting[event.tensor] > 0; ++i) {
      const int64_t bytes = c10::multiply_integers(shapes[i].sizes) *
                            static_cast<int64_t>(options.dtype().itemsize());
      if (results[i].defined() || bytes != event.bytes) continue;
      results[i] = at::empty(shapes[i].sizes, options, shapes[i].format);
      taken_as_result = true;
      break;
    }
    if (!taken_as_result) {
      scratch[event.tensor] = at::empty({event.bytes}, options.dtype(at::kByte));
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (!results[i].defined()) results[i] = at::empty(shapes[i].sizes, options, shapes[i].format);
  }
  return results;
}

// Whether torch's kernel was replaced, as precision/half_convolution does.
bool has_own_kernel() {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::convolution_backward", "");
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// The patches of all samples. They are a copy unless the kernel is 1x1 with stride 1 and no
// padding; then the result is undefined.
at::Tensor columns_of(const at::Tensor& input, const at::Tensor& weight, const Sizes& stride,
                      const Sizes& padding) {
  const Sizes ones = {1, 1}, zeros = {0, 0};
  const auto kernel = weight.sizes().slice(2);
  if (kernel == ones && stride == ones && padding == zeros) return {};
  const Sizes out = at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride);
  return at::empty({input.size(0), input.size(1) * kernel[0] * kernel[1], out[2] * out[3]},
                   input.options());
}

}  // namespace

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
Sizes convolution_sizes(c10::ArrayRef<c10::IValue> a) {
  const at::Tensor input = tensor_in(a[0]), weight = tensor_in(a[1]);
  const auto each = [&](size_t i) { return spatial(a[i], static_cast<size_t>(weight.dim()) - 2); };
  return a[6].toBool() ? at::native::conv_input_size(input.sizes(), weight.sizes(), each(4),
                                                     each(7), each(3), each(5), a[8].toInt())
                       : at::native::conv_output_size(input.sizes(), weight.sizes(), each(4),
                                                      each(3), each(5));
}

std::optional<Results> dry_convolution_shape(const Arguments& a) {
  const at::Tensor input = tensor_in(a[0]), weight = tensor_in(a[1]);
  if (has_cpu_kernels(input)) return Results{at::empty(convolution_sizes(a), input.options())};
  const auto format = device_format(input, weight);
  const at::Tensor own_input = input.contiguous(format), own_weight = weight.contiguous(format);
  return Results{at::empty(convolution_sizes(a), input.options(), format)};
}

// mkldnn_convolution(input, weight, bias, padding, stride, dilation, groups)
std::optional<Results> dry_convolution(const Arguments& a) {
  if (tensor_in(a[0]).dim() != 4) return std::nullopt;
  const bool last = at::native::mkldnn_conv_use_channels_last(tensor_in(a[0]), tensor_in(a[1]));
  const auto format = format_of(last);
  const Call call{.input = tensor_in(a[0]).contiguous(format),
                  .weight = tensor_in(a[1]).contiguous(format),
                  .gradient = {},
                  .stride = spatial(a[4]),
                  .padding = spatial(a[3]),
                  .dilation = spatial(a[5]),
                  .groups = a[6].toInt(),
                  .bias = tensor_in(a[2]).defined()};
  return Results{repeated(call, {{call.output_sizes(), format}}).front()};
}

// Makes what a device's kernel makes, except its workspace, which depends on the algorithm that its
// library chooses.
Results device_convolution_gradients(const Arguments& a) {
  const at::Tensor input = tensor_in(a[1]), weight = tensor_in(a[2]);
  const auto wanted = a[10].toBoolList();
  const auto format = device_format(input, weight);
  const at::Tensor gradient = tensor_in(a[0]).contiguous(format);
  const at::Tensor own_input = input.contiguous(format), own_weight = weight.contiguous(format);
  Results results(3, at::Tensor());
  if (wanted[0]) results[0] = at::empty(input.sizes(), input.options(), format);
  if (wanted[1]) results[1] = at::empty(weight.sizes(), weight.options(), format);
  if (wanted[2]) {
    const int64_t channels = a[7].toBool() ? weight.size(1) * a[9].toInt() : weight.size(0);
    results[2] = at::empty({channels}, weight.options());
  }
  return results;
}

// convolution_backward(gradient, input, weight, bias_sizes, stride, padding, dilation, transposed,
//                      output_padding, groups, output_mask)
std::optional<Results> dry_convolution_backward(const Arguments& a) {
  const at::Tensor input = tensor_in(a[1]), weight = tensor_in(a[2]);
  const auto wanted = a[10].toBoolList();
  if (!has_cpu_kernels(input)) return device_convolution_gradients(a);
  if (input.dim() != 4 || a[7].toBool()) return std::nullopt;
  if (input.scalar_type() == at::kHalf && wanted[1] && has_own_kernel()) return std::nullopt;
  Call call{.input = input,
            .weight = weight,
            .gradient = {},
            .stride = spatial(a[4]),
            .padding = spatial(a[5]),
            .dilation = spatial(a[6]),
            .groups = a[9].toInt(),
            .bias = !a[3].isNone(),
            .wanted = {wanted[0], wanted[1], wanted[2]}};
  if (!is_onednn(call, input.size(0), call.out(0))) return std::nullopt;
  const auto format = format_of(at::native::mkldnn_conv_use_channels_last(input, weight));
  call.gradient = tensor_in(a[0]).contiguous(format);
  call.input = input.contiguous(format);
  call.weight = weight.contiguous(format);
  std::vector<Shape> shapes;
  if (wanted[0]) shapes.push_back({input.sizes().vec(), format});
  if (wanted[1]) shapes.push_back({weight.sizes().vec(), format});
  if (wanted[2]) shapes.push_back({{weight.size(0)}, at::MemoryFormat::Contiguous});
  const auto gradients = repeated(call, shapes);
  Results results(3, at::Tensor());
  for (size_t i = 0, next = 0; i < 3; ++i) {
    if (wanted[i]) results[i] = gradients[next++];
  }
  return results;
}

// _slow_conv2d_forward(input, weight, kernel_size, bias, stride, padding)
std::optional<Results> dry_slow_convolution(const Arguments& a) {
  const bool last = at::native::thnn_conv_use_channels_last(tensor_in(a[0]), tensor_in(a[1]));
  const at::Tensor weight = tensor_in(a[1]).contiguous(format_of(last));
  const at::Tensor input = tensor_in(a[0]).contiguous(format_of(last));
  const Sizes stride = spatial(a[4]), padding = spatial(a[5]);
  const at::Tensor columns = columns_of(input, weight, stride, padding);
  const Sizes sizes = at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride);
  return Results{at::empty(sizes, input.options(), format_of(last))};
}

// _slow_conv2d_backward(gradient, input, weight, kernel_size, stride, padding, output_mask)
std::optional<Results> dry_slow_convolution_backward(const Arguments& a) {
  const at::Tensor given = tensor_in(a[0]), input = tensor_in(a[1]), weight = tensor_in(a[2]);
  const auto wanted = a[6].toBoolList();
  Results results(3, at::Tensor());
  const auto format = format_of(at::native::thnn_conv_use_channels_last(input, weight));
  if (wanted[0]) {
    const at::Tensor own_weight = weight.contiguous(format), own_input = input.contiguous(format);
    const at::Tensor gradient = given.contiguous(format);
    results[0] = at::empty(input.sizes(), given.options(), format);
  }
  if (wanted[2]) results[2] = given.sum(at::IntArrayRef{0, 2, 3});
  if (wanted[1]) {
    const at::Tensor of_weight =
        at::empty(weight.sizes(), given.options(), weight.suggest_memory_format());
    const auto own = format_of(at::native::thnn_conv_use_channels_last(input, of_weight));
    const at::Tensor gradient = given.contiguous(own);
    const at::Tensor columns = columns_of(input, weight, spatial(a[4]), spatial(a[5]));
    results[1] = of_weight;
  }
  return results;
}

}  // namespace tanren
