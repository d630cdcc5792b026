// Words of the config as enumerations, so that no code after plan/ compares text. `all` lists the
// words of an enumeration in its order.
#pragma once

#include "tanren/base/error.h"
#include "tanren/base/pipeline_schedule.h"

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

namespace tanren {

enum class Mode { fp32, bf16, fp16, fp64 };                        // precision.mode
enum class Matmul { highest, high, medium };                       // precision.matmul
enum class RecoveryMode { off, split, same_split, evaluation };    // memory.recovery
enum class ReleaseCache { never, pressure, step };                 // memory.release_cache
enum class Backend { single, gloo, nccl, threads };                // parallel.backend
enum class Compress { none, bf16, fp16 };                          // parallel.compress
enum class RankBuffers { mean, first, synchronised };              // parallel.buffers
enum class QuantizeScheme { none, weights, dynamic, calibrated };  // quantize.scheme
enum class RangeKind { mse, minmax };                              // quantize.range

template <typename Value>
struct Words;
template <>
struct Words<Mode> {
  static constexpr std::string_view all[] = {"fp32", "bf16", "fp16", "fp64"};
};
template <>
struct Words<Matmul> {
  static constexpr std::string_view all[] = {"highest", "high", "medium"};
};
template <>
struct Words<RecoveryMode> {
  static constexpr std::string_view all[] = {"off", "split", "same_split", "evaluation"};
};
template <>
struct Words<ReleaseCache> {
  static constexpr std::string_view all[] = {"never", "pressure", "step"};
};
template <>
struct Words<Backend> {
  static constexpr std::string_view all[] = {"single", "gloo", "nccl", "threads"};
};
template <>
struct Words<Compress> {
  static constexpr std::string_view all[] = {"none", "bf16", "fp16"};
};
template <>
struct Words<RankBuffers> {
  static constexpr std::string_view all[] = {"mean", "first", "synchronised"};
};

template <>
struct Words<QuantizeScheme> {
  static constexpr std::string_view all[] = {"none", "weights", "dynamic", "static"};
};
template <>
struct Words<RangeKind> {
  static constexpr std::string_view all[] = {"mse", "minmax"};
};
template <>
struct Words<PipelineSchedule> {  // parallel.pipeline_schedule
  static constexpr std::string_view all[] = {"gpipe", "1f1b"};
};

// The word of `value`.
template <typename Value>
requires requires { Words<Value>::all; }
std::string name(Value value) { return std::string(Words<Value>::all[static_cast<size_t>(value)]); }

// The value of `word`. ConfigError if no value has that word.
template <typename Value>
Value from_word(const std::string& word) {
  std::string known;
  for (size_t i = 0; i < std::size(Words<Value>::all); ++i) {
    if (word == Words<Value>::all[i]) return static_cast<Value>(i);
    known += (i == 0 ? "" : ", ") + std::string(Words<Value>::all[i]);
  }
  throw ConfigError("[plan] \"" + word + "\" is none of " + known);
}

}  // namespace tanren
