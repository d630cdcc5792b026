// safetensors files: 8-byte little-endian header length, JSON header, raw little-endian data.
// Tensors are views of the mapped file: pages are read when they are touched, and writing to a
// tensor changes nothing on disk. Names, shapes and offsets are first checked against the file's
// size, so a truncated or hostile file gives a one-line DataError, never a crash or a huge
// allocation. Format: huggingface/safetensors.
#pragma once

#include "tanren/base/tensor_map.h"

#include <filesystem>
#include <map>
#include <string>

namespace tanren {

using Metadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  TensorMap tensors;  // contiguous CPU tensors
  Metadata metadata;
};

SafetensorsFile read_safetensors(const std::filesystem::path& path);
// How floating tensors of 16 bits are written. widened: as fp32. They are converted one after the
// other, so that memory never holds a second copy of all of them.
enum class Narrow { as_it_is, widened };
// Atomic (see file.h). Tensors may be on any device and strided; they are written contiguous.
// InputError for a tensor that stands for an 8-bit weight (base/row_of_nan.h), before the first
// byte.
void write_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                       const Metadata& metadata = {}, Narrow narrow = Narrow::as_it_is);

}  // namespace tanren
