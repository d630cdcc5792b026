#include "tanren/ops/quantized_convolution.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/int8_product.h"
#include "tanren/ops/int8_rows.h"
#include "tanren/ops/parallel_for.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace tanren {
namespace {

constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;

using IntList = c10::List<int64_t>;

IntList twice(int64_t value) { return IntList({value, value}); }

at::Tensor called(const char* name, torch::jit::Stack stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&stack);
  return stack.back().toTensor();
}

at::Tensor onednn_packed(const at::Tensor& values, const at::Tensor& scales,
                         const InputScale& input, int64_t stride, int64_t padding) {
  return called("onednn::qconv_prepack",
                {values, scales, static_cast<double>(input.scale), int64_t{input.zero_point},
                 twice(stride), twice(padding), twice(1), int64_t{1}, c10::IValue()});
}

at::Tensor onednn_convolution(const at::Tensor& bytes, const QuantizedConvolution& of,
                              const at::Tensor& bias, at::ScalarType dtype) {
  const at::Tensor zero_points = at::zeros({of.out}, at::kInt);
  return called(
      "onednn::qconv2d_pointwise",
      {bytes, static_cast<double>(of.input.scale), int64_t{of.input.zero_point}, of.onednn_weight,
       of.scales, zero_points, bias.defined() ? c10::IValue(bias) : c10::IValue(), twice(of.stride),
       twice(of.padding), twice(1), int64_t{1}, /*output_scale=*/1.0,
       /*output_zero_point=*/int64_t{0}, dtype, /*attr=*/std::string("none"),
       c10::List<std::optional<at::Scalar>>(), /*algorithm=*/std::string()});
}

// Images as bytes, channels-last, and the scale of each: NaN if an element is not finite.
struct ByteImages {
  at::Tensor bytes;  // uint8 [n, in, h, w]
  std::vector<float> scales;
};

template <class T>
void quantize_images(const at::Tensor& x, const ByteRange& range, ByteImages& images) {
  const int64_t line = x.size(1) * x.size(3), lines = x.size(0) * x.size(2);
  std::vector<float> of_lines(static_cast<size_t>(lines));
  const auto* from = x.const_data_ptr<T>();
  auto* to = images.bytes.mutable_data_ptr<uint8_t>();
  parallel_for(0, lines, std::max<int64_t>(1, 16384 / line), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      of_lines[static_cast<size_t>(i)] = quantize_row(from + i * line, line, range, to + i * line);
    }
  });
  images.scales.assign(static_cast<size_t>(x.size(0)), range.scale);
  for (int64_t i = 0; i < lines; ++i) {
    const float scale = of_lines[static_cast<size_t>(i)];
    if (std::isnan(scale)) images.scales[static_cast<size_t>(i / x.size(2))] = scale;
  }
}

// The patches of byte images as rows of a product, one per output position.
struct BytePatches {
  const uint8_t* images;
  const float* scales;
  int64_t height, width, channels, out_height, out_width, kernel, stride, padding;
  uint8_t zero;

  void operator()(int64_t first, int64_t count, int64_t row, uint8_t* bytes, float* of) const {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t position = first + i, image = position / (out_height * out_width);
      of[i] = scales[image];
      patch(images + image * height * width * channels,
            position / out_width % out_height * stride - padding,
            position % out_width * stride - padding, bytes + i * row);
    }
  }

  void patch(const uint8_t* image, int64_t top, int64_t left, uint8_t* to) const {
    // The part [first, last) of each line of the patch lies inside the image.
    const int64_t first = std::clamp<int64_t>(-left, 0, kernel);
    const int64_t last = std::clamp<int64_t>(width - left, first, kernel);
    for (int64_t y = top; y < top + kernel; ++y, to += kernel * channels) {
      if (y < 0 || y >= height) {
        std::memset(to, zero, static_cast<size_t>(kernel * channels));
        continue;
      }
      const uint8_t* from = image + (y * width + left) * channels;
      std::memset(to, zero, static_cast<size_t>(first * channels));
      std::memcpy(to + first * channels, from + first * channels,
                  static_cast<size_t>((last - first) * channels));
      std::memset(to + last * channels, zero, static_cast<size_t>((kernel - last) * channels));
    }
  }
};

bool probe_convolution() {
  // All values are extreme: pairs of their products do not fit 16 bits, on either side.
  const at::Tensor bytes = at::full({2, 8, 5, 6}, 255, at::kFloat);
  bytes.select(0, 1).slice(1, 0, 5, 2).zero_();
  at::Tensor values = at::full({18, 8, 3, 3}, 127, at::kFloat);
  values.slice(0, 0, 18, 2).neg_();
  const QuantizedWeight weight = quantize_weight(values, "probe");
  const InputScale input{1, 100};
  const at::Tensor x = bytes - input.zero_point, bias = at::arange(18).to(at::kFloat);
  try {
    const auto of = prepare_convolution(weight, input, 2, 1, ConvolutionWay::onednn);
    const at::Tensor y = quantized_convolution(x, of, bias, at::kFloat);
    const at::Tensor wanted = quantized_convolution_plain(x, weight, input, 2, 1, bias, at::kFloat);
    return at::allclose(y, wanted, 1e-5, 1e-2);
  } catch (const std::exception&) {  // no kernel
    return false;
  }
}

}  // namespace

bool has_onednn_convolution() {
  static const bool has = [] {
    const at::NoGradGuard no_gradients;
    return probe_convolution();
  }();
  return has;
}

QuantizedConvolution prepare_convolution(const QuantizedWeight& weight, const InputScale& input,
                                         int64_t stride, int64_t padding, ConvolutionWay way) {
  const at::Tensor& values = weight.values;
  if (values.dim() != 4 || values.size(2) != values.size(3) || weight.groups() != 1 || stride < 1 ||
      padding < 0) {
    throw Error(
        fmt::format("[ops] quantized_convolution with a weight {}, {} scales a channel, "
                    "stride {} and padding {}; give a square kernel and one scale",
                    values.sizes().vec(), weight.groups(), stride, padding));
  }
  QuantizedConvolution of{.in = values.size(1),
                          .out = values.size(0),
                          .kernel = values.size(2),
                          .stride = stride,
                          .padding = padding,
                          .input = input};
  const bool dry = is_dry(values);
  if (way == ConvolutionWay::best) {
    way = !dry && has_onednn_convolution() ? ConvolutionWay::onednn : ConvolutionWay::patches;
  }
  if (way == ConvolutionWay::onednn) {
    of.scales = weight.scales.view({-1});
    of.onednn_weight = onednn_packed(values, of.scales, input, stride, padding);
  } else {
    of.weight =
        pack_weight({values.permute({0, 2, 3, 1}).contiguous(), weight.scales, weight.sums});
  }
  return of;
}

at::Tensor quantized_convolution(const at::Tensor& x, const QuantizedConvolution& of,
                                 const at::Tensor& bias, at::ScalarType dtype) {
  const auto narrow = [](at::ScalarType type) {
    return type == at::kFloat || type == at::kBFloat16;
  };
  if (x.dim() != 4 || x.size(1) != of.in || !x.device().is_cpu() || !narrow(x.scalar_type()) ||
      !narrow(dtype) || (bias.defined() && bias.numel() != of.out)) {
    throw Error(fmt::format(
        "[ops] quantized_convolution of {} {} to {} with {} channels to {}; "
        "give images of these channels in fp32 or bf16 on the CPU",
        c10::toString(x.scalar_type()), x.sizes().vec(), c10::toString(dtype), of.in, of.out));
  }
  const auto size_of = [&](int64_t size) {
    return (size + 2 * of.padding - of.kernel) / of.stride + 1;
  };
  if (x.size(2) + 2 * of.padding < of.kernel || x.size(3) + 2 * of.padding < of.kernel) {
    throw Error(
        fmt::format("[ops] quantized_convolution of images {} × {} with a kernel {} × {}; "
                    "give larger images",
                    x.size(2), x.size(3), of.kernel, of.kernel));
  }
  const at::Tensor image = x.detach().contiguous(kChannelsLast);
  const at::Tensor added = bias.defined() ? bias.detach().to(at::kFloat).contiguous() : bias;
  ByteImages images{at::empty(image.sizes(), image.options().dtype(at::kByte), kChannelsLast), {}};
  at::Tensor y = at::empty({x.size(0), of.out, size_of(x.size(2)), size_of(x.size(3))},
                           image.options().dtype(dtype), kChannelsLast);
  note_dry_forward(y.numel() * of.in * of.kernel * of.kernel, /*gradients=*/0);
  // The weight's last size tells listeners the multiply-adds of a result.
  const at::Tensor& weight = of.onednn_weight.defined() ? of.onednn_weight : of.weight.panels;
  OperatorRecord record("tanren::quantized_convolution", image, y, weight);
  if (is_dry(y) || y.numel() == 0) return y;
  const ByteRange range{false, of.input.scale, of.input.zero_point};
  if (image.scalar_type() == at::kBFloat16) {
    quantize_images<c10::BFloat16>(image, range, images);
  } else {
    quantize_images<float>(image, range, images);
  }
  if (!of.onednn_weight.defined()) {
    const BytePatches patches{images.bytes.const_data_ptr<uint8_t>(),
                              images.scales.data(),
                              x.size(2),
                              x.size(3),
                              of.in,
                              y.size(2),
                              y.size(3),
                              of.kernel,
                              of.stride,
                              of.padding,
                              static_cast<uint8_t>(of.input.zero_point)};
    int8_product(patches, of.weight, of.input.zero_point, added, y);
    return y;
  }
  y = onednn_convolution(images.bytes, of, added, dtype).contiguous(kChannelsLast);
  for (int64_t i = 0; i < x.size(0); ++i) {
    if (std::isnan(images.scales[static_cast<size_t>(i)])) {
      y.select(0, i).fill_(std::numeric_limits<float>::quiet_NaN());
    }
  }
  return y;
}

at::Tensor quantized_convolution_plain(const at::Tensor& x, const QuantizedWeight& weight,
                                       const InputScale& input, int64_t stride, int64_t padding,
                                       const at::Tensor& bias, at::ScalarType dtype) {
  const at::Tensor image = x.detach().to(at::kFloat);
  const at::Tensor scale = at::full({x.size(0), 1, 1, 1}, input.scale);
  const at::Tensor finite = image.isfinite().flatten(1).all(1).view({-1, 1, 1, 1});
  const at::Tensor whole = (image * scale.reciprocal())
                               .round()
                               .clamp(-input.zero_point, 255 - input.zero_point)
                               .nan_to_num(0, 0, 0);
  const at::Tensor sums = at::conv2d(whole.to(at::kDouble), weight.values.to(at::kDouble), {},
                                     {stride, stride}, {padding, padding});
  at::Tensor y = sums.to(at::kFloat) * weight.scales.view({1, -1, 1, 1});
  y = y * at::where(finite, scale, at::full_like(scale, NAN));
  if (bias.defined()) y = y + bias.to(at::kFloat).view({1, -1, 1, 1});
  return y.to(dtype);
}

}  // namespace tanren
