#include "tanren/ops/random_tensor.h"

#include "tanren/base/error.h"
#include "tanren/base/operator_record.h"
#include "tanren/base/random.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/dropout.h"
#include "tanren/ops/parallel_for.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tanren {

namespace {

using Block = std::array<uint32_t, 4>;

const RandomScope& scope_of(at::IntArrayRef sizes, at::ScalarType dtype) {
  const RandomScope* scope = RandomScope::current();
  if (scope == nullptr) {
    throw Error(
        "[ops] random numbers outside a RandomScope; open tanren::RandomScope(seed, attempt, ids) "
        "around the forward");
  }
  const int64_t samples = scope->ids().size(0);
  if (sizes.empty() || sizes[0] != samples) {
    throw Error(
        fmt::format("[ops] random numbers of shape [{}] in a RandomScope of {} samples; dim 0 must "
                    "be the samples",
                    fmt::join(sizes, ", "), samples));
  }
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw Error(fmt::format("[ops] random numbers are drawn in fp32 or fp64, not in {}; cast them",
                            c10::toString(dtype)));
  }
  return *scope;
}

// Fills [samples, elements]: `values` makes four numbers of 128 bits.
template <typename T, typename F>
void fill(const RandomScope& scope, uint64_t site, const at::Tensor& into, const F& values) {
  const at::Tensor ids = scope.ids().contiguous();
  const auto* samples = ids.const_data_ptr<int64_t>();
  const int64_t count = ids.numel(), each = count == 0 ? 0 : into.numel() / count;
  const uint64_t key = random_bits(scope.seed(), static_cast<uint64_t>(scope.attempt()), site);
  const std::array<uint32_t, 2> words = {static_cast<uint32_t>(key),
                                         static_cast<uint32_t>(key >> 32)};
  auto* out = into.mutable_data_ptr<T>();
  parallel_for(0, count, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(each, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const auto id = static_cast<uint64_t>(samples[i]);
                   for (int64_t e = 0; e < each; e += 4) {
                     const auto block = static_cast<uint64_t>(e) / 4;
                     const std::array<double, 4> four = values(
                         philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                                 static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32)},
                                words));
                     for (int64_t j = e; j < std::min(e + 4, each); ++j) {
                       out[i * each + j] = static_cast<T>(four[static_cast<size_t>(j - e)]);
                     }
                   }
                 }
               });
}

std::array<double, 4> uniform_of(const Block& bits) {
  std::array<double, 4> numbers{};
  for (size_t i = 0; i < 4; ++i) numbers[i] = std::ldexp(bits[i] >> 8, -24);
  return numbers;
}

std::array<double, 4> normal_of(const Block& bits) {
  constexpr double kTurn = 6.283185307179586;
  std::array<double, 4> numbers{};
  for (size_t i = 0; i < 4; i += 2) {
    const double length = std::sqrt(-2 * std::log(std::ldexp(bits[i] + 1.0, -32)));
    const double angle = kTurn * std::ldexp(bits[i + 1], -32);
    numbers[i] = length * std::cos(angle);
    numbers[i + 1] = length * std::sin(angle);
  }
  return numbers;
}

template <typename F>
at::Tensor drawn(const char* name, at::IntArrayRef sizes, uint64_t site,
                 const at::TensorOptions& options, const F& values) {
  const at::ScalarType dtype = c10::typeMetaToScalarType(options.dtype());
  const RandomScope& scope = scope_of(sizes, dtype);
  const bool is_host = options.device().is_cpu();
  at::Tensor out = at::empty(sizes, options);
  if (is_dry(out)) return out;
  const at::Tensor host = is_host ? out : at::empty(sizes, at::dtype(dtype).pinned_memory(true));
  const OperatorRecord record(name, out);
  if (dtype == at::kFloat) {
    fill<float>(scope, site, host, values);
  } else {
    fill<double>(scope, site, host, values);
  }
  if (!is_host) out.copy_(host, /*non_blocking=*/true);
  return out;
}

}  // namespace

at::Tensor uniform(at::IntArrayRef sizes, uint64_t site, const at::TensorOptions& options) {
  return drawn("tanren::uniform", sizes, site ^ site_id("uniform"), options, uniform_of);
}

at::Tensor normal(at::IntArrayRef sizes, uint64_t site, const at::TensorOptions& options) {
  return drawn("tanren::normal", sizes, site ^ site_id("normal"), options, normal_of);
}

}  // namespace tanren
