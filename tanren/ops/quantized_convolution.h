// A convolution of images with an 8-bit weight and a static input scale, for evaluation and
// prediction: it has no gradient. The image is converted to bytes, and the products are those of
// whole numbers. oneDNN computes them if a probe finds it correct on this processor. Otherwise
// int8_gemm computes them from patches, exactly. Called by quantize/quantize_scope. Thread-safe.
//
// oneDNN's way has run only on AVX2, with values whose pairs of products fit 16 bits. The probe
// rejects it there, because its 8-bit products saturate. It has not run on VNNI and AMX yet.
#pragma once

#include "tanren/ops/quantized_linear.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tanren {

// The same stride and zero padding in both directions; no groups, no dilation.
struct QuantizedConvolution {
  int64_t in = 0, out = 0, kernel = 1, stride = 1, padding = 0;
  InputScale input;
  PackedWeight weight;               // elements of a channel in the order kernel, kernel, in
  at::Tensor onednn_weight, scales;  // instead of `weight`, in oneDNN's way
};

// Whether oneDNN's int8 convolution gives exact sums on this processor; probed once a process, with
// extreme values and a padded image.
bool has_onednn_convolution();

enum class ConvolutionWay { best, patches, onednn };

// weight: values [out, in, kernel, kernel] with one scale a channel. Throws an Error if the kernel
// is not square, the scales are in groups or the stride is below 1.
QuantizedConvolution prepare_convolution(const QuantizedWeight& weight, const InputScale& input,
                                         int64_t stride, int64_t padding,
                                         ConvolutionWay way = ConvolutionWay::best);

// x [n, in, h, w], fp32 or bf16 on the CPU, bias [out] or undefined → [n, out, h', w'] in `dtype`,
// fp32 or bf16, channels-last. An image with an element that is not finite becomes NaN.
at::Tensor quantized_convolution(const at::Tensor& x, const QuantizedConvolution& of,
                                 const at::Tensor& bias, at::ScalarType dtype);

// The same bits as the way with patches, computed by torch's operators in fp64; for tests.
at::Tensor quantized_convolution_plain(const at::Tensor& x, const QuantizedWeight& weight,
                                       const InputScale& input, int64_t stride, int64_t padding,
                                       const at::Tensor& bias, at::ScalarType dtype);

}  // namespace tanren
