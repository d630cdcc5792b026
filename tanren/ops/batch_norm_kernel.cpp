#include "tanren/ops/batch_norm_kernel.h"

#include "tanren/ops/bfloat_bits.h"
#include "tanren/ops/parallel_for.h"

#include <algorithm>
#include <vector>

#define TANREN_INLINE [[gnu::always_inline]] inline

namespace tanren {
namespace {

constexpr int64_t kBlockRows = 256;        // rows in one partial sum
constexpr int64_t kGrainValues = 1 << 15;  // elements below which one thread is faster

TANREN_INLINE float load(float x) { return x; }
TANREN_INLINE float load(uint16_t x) { return from_bfloat16(x); }
TANREN_INLINE void store(float x, float* to) { *to = x; }
TANREN_INLINE void store(float x, uint16_t* to) { *to = bfloat16_bits(x); }

// The loops over some rows. Each is compiled for AVX2 and for the baseline (see Best).
template <typename T>
struct Rows {
  // sum[c] += Σ (x - shift[c]), square[c] += Σ (x - shift[c])².
  TANREN_INLINE static void moments(const T* x, int64_t rows, int64_t channels, const float* shift,
                                    float* sum, float* square) {
    for (int64_t r = 0; r < rows; ++r, x += channels) {
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) {
        const float d = load(x[c]) - shift[c];
        sum[c] += d;
        square[c] += d * d;
      }
    }
  }

  TANREN_INLINE static void normalise(const NormedRows& norm, int64_t rows, const T* x,
                                      const T* residual, T* y) {
    const int64_t channels = norm.channels;
    const float *factor = norm.factor, *offset = norm.offset;
    const float floor = norm.relu ? 0.0f : -__builtin_inff();
    for (int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
      if (residual != nullptr) {
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          const float value = load(x[c]) * factor[c] + offset[c] + load(residual[c]);
          store(value < floor ? floor : value, y + c);
        }
        residual += channels;
      } else {
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          const float value = load(x[c]) * factor[c] + offset[c];
          store(value < floor ? floor : value, y + c);
        }
      }
    }
  }

  // relu cut where y is 0; g is then written to `masked`. Without y, it cut where value ≤ 0.
  TANREN_INLINE static void sums(const NormedRows& norm, int64_t rows, const T* gradient,
                                 const T* x, const T* y, const float* mean, T* masked, float* sum,
                                 float* dot) {
    const int64_t channels = norm.channels;
    const float *factor = norm.factor, *offset = norm.offset;
    const float floor = norm.relu ? 0.0f : -__builtin_inff();
    for (int64_t r = 0; r < rows; ++r, x += channels, gradient += channels) {
      if (y != nullptr) {
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          const float given = load(gradient[c]);
          const float g = load(y[c]) <= floor ? 0.0f : given;
          store(g, masked + c);
          sum[c] += g;
          dot[c] += g * (load(x[c]) - mean[c]);
        }
        y += channels;
        masked += channels;
      } else {
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) {
          const float value = load(x[c]), given = load(gradient[c]);
          const float g = value * factor[c] + offset[c] <= floor ? 0.0f : given;
          sum[c] += g;
          dot[c] += g * (value - mean[c]);
        }
      }
    }
  }

  TANREN_INLINE static void slopes(const NormedRows& norm, const InputSlopes& slopes, int64_t rows,
                                   const T* gradient, const T* x, bool is_masked, T* dx) {
    const int64_t channels = norm.channels;
    const float *factor = norm.factor, *offset = norm.offset;
    const float *a = slopes.of_gradient, *b = slopes.of_x, *constant = slopes.constant;
    const float floor = norm.relu && !is_masked ? 0.0f : -__builtin_inff();
    for (int64_t r = 0; r < rows; ++r, x += channels, gradient += channels, dx += channels) {
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) {
        const float value = load(x[c]), given = load(gradient[c]);
        const float g = value * factor[c] + offset[c] <= floor ? 0.0f : given;
        store(g * a[c] + value * b[c] + constant[c], dx + c);
      }
    }
  }
};

#if defined(__x86_64__)
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") > 0 && __builtin_cpu_supports("fma") > 0;
  return has;
}
#define TANREN_AVX2 [[gnu::target("avx2,fma")]]
#else
constexpr bool has_avx2() { return false; }
#define TANREN_AVX2
#endif

// The loops of Rows, compiled once more with AVX2. Each call takes that variant if the processor
// has AVX2.
template <typename T>
struct Best {
  template <typename... Args>
  TANREN_AVX2 static void moments_avx2(Args... args) {
    Rows<T>::moments(args...);
  }
  template <typename... Args>
  static void moments(Args... args) {
    has_avx2() ? moments_avx2(args...) : Rows<T>::moments(args...);
  }
  template <typename... Args>
  TANREN_AVX2 static void normalise_avx2(const NormedRows& norm, Args... args) {
    Rows<T>::normalise(norm, args...);
  }
  template <typename... Args>
  static void normalise(const NormedRows& norm, Args... args) {
    has_avx2() ? normalise_avx2(norm, args...) : Rows<T>::normalise(norm, args...);
  }
  template <typename... Args>
  TANREN_AVX2 static void sums_avx2(const NormedRows& norm, Args... args) {
    Rows<T>::sums(norm, args...);
  }
  template <typename... Args>
  static void sums(const NormedRows& norm, Args... args) {
    has_avx2() ? sums_avx2(norm, args...) : Rows<T>::sums(norm, args...);
  }
  template <typename... Args>
  TANREN_AVX2 static void slopes_avx2(const NormedRows& norm, const InputSlopes& slopes,
                                      Args... args) {
    Rows<T>::slopes(norm, slopes, args...);
  }
  template <typename... Args>
  static void slopes(const NormedRows& norm, const InputSlopes& slopes, Args... args) {
    has_avx2() ? slopes_avx2(norm, slopes, args...) : Rows<T>::slopes(norm, slopes, args...);
  }
};

// Calls work(block, first, count) for the rows of each block, on any thread.
template <typename F>
void for_each_block(int64_t rows, int64_t channels, const F& work) {
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  const int64_t grain = std::max<int64_t>(1, kGrainValues / (kBlockRows * channels));
  parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kBlockRows;
      work(block, first, std::min(kBlockRows, rows - first));
    }
  });
}

// Two sums of each block, [blocks, 2, channels].
struct Partials {
  Partials(int64_t rows, int64_t channels)
      : width(static_cast<size_t>(channels)),
        blocks(static_cast<size_t>((rows + kBlockRows - 1) / kBlockRows)),
        memory(2 * width * blocks) {}
  float* first(size_t block) { return memory.data() + 2 * width * block; }
  float* second(size_t block) { return first(block) + width; }
  size_t width, blocks;
  std::vector<float> memory;
};

}  // namespace

template <typename T>
void channel_moments(const T* x, int64_t rows, int64_t channels, double* mean, double* variance) {
  // The sums are taken about the first row, so that a mean far from 0 loses no precision.
  std::vector<float> shift(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c) shift[static_cast<size_t>(c)] = load(x[c]);
  Partials partials(rows, channels);
  for_each_block(rows, channels, [&](int64_t block, int64_t first, int64_t count) {
    const auto i = static_cast<size_t>(block);
    Best<T>::moments(x + first * channels, count, channels, static_cast<const float*>(shift.data()),
                     partials.first(i), partials.second(i));
  });
  std::vector<double> sum(partials.width), square(partials.width);
  for (size_t block = 0; block < partials.blocks; ++block) {
    const float *one = partials.first(block), *two = partials.second(block);
    for (size_t c = 0; c < partials.width; ++c) {
      sum[c] += one[c];
      square[c] += two[c];
    }
  }
  const auto count = static_cast<double>(rows);
  for (size_t c = 0; c < partials.width; ++c) {
    const double off = sum[c] / count;
    mean[c] = shift[c] + off;
    const double spread = square[c] / count - off * off;
    variance[c] = spread < 0 ? 0 : spread;
  }
}

template <typename T>
void normalise_rows(const NormedRows& norm, const T* x, const T* residual, T* y) {
  for_each_block(norm.rows, norm.channels, [&](int64_t, int64_t first, int64_t count) {
    const int64_t begin = first * norm.channels;
    Best<T>::normalise(norm, count, x + begin, residual != nullptr ? residual + begin : nullptr,
                       y + begin);
  });
}

template <typename T>
void gradient_sums(const NormedRows& norm, const T* gradient, const T* x, const T* y,
                   const float* mean, T* masked, double* sum, double* dot) {
  Partials partials(norm.rows, norm.channels);
  for_each_block(norm.rows, norm.channels, [&](int64_t block, int64_t first, int64_t count) {
    const auto i = static_cast<size_t>(block);
    const int64_t begin = first * norm.channels;
    Best<T>::sums(norm, count, gradient + begin, x + begin, y != nullptr ? y + begin : nullptr,
                  mean, masked != nullptr ? masked + begin : nullptr, partials.first(i),
                  partials.second(i));
  });
  std::fill(sum, sum + norm.channels, 0.0);
  std::fill(dot, dot + norm.channels, 0.0);
  for (size_t block = 0; block < partials.blocks; ++block) {
    const float *one = partials.first(block), *two = partials.second(block);
    for (size_t c = 0; c < partials.width; ++c) {
      sum[c] += one[c];
      dot[c] += two[c];
    }
  }
}

template <typename T>
void input_gradient(const NormedRows& norm, const InputSlopes& slopes, const T* gradient,
                    const T* x, bool is_masked, T* dx) {
  for_each_block(norm.rows, norm.channels, [&](int64_t, int64_t first, int64_t count) {
    const int64_t begin = first * norm.channels;
    Best<T>::slopes(norm, slopes, count, gradient + begin, x + begin, is_masked, dx + begin);
  });
}

// NOLINTBEGIN(bugprone-macro-parentheses): types
#define TANREN_NORM(T)                                                                             \
  template void channel_moments<T>(const T*, int64_t, int64_t, double*, double*);                  \
  template void normalise_rows<T>(const NormedRows&, const T*, const T*, T*);                      \
  template void gradient_sums<T>(const NormedRows&, const T*, const T*, const T*, const float*,    \
                                 T*, double*, double*);                                            \
  template void input_gradient<T>(const NormedRows&, const InputSlopes&, const T*, const T*, bool, \
                                  T*)
// NOLINTEND(bugprone-macro-parentheses)
TANREN_NORM(float);
TANREN_NORM(uint16_t);
#undef TANREN_NORM

}  // namespace tanren
