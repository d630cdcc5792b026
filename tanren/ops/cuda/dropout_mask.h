// The kernel of tanren::dropout_mask for CUDA, a part of libtanren_cuda.so. It does not use torch,
// so that nvcc reads none of torch's headers. Called by register.cpp.
#pragma once

#include "tanren/base/philox.h"

#include <cstddef>
#include <cstdint>

namespace tanren::cuda {

// A mask [samples, rows, columns]. Row r begins at Philox block (r % rows_of_head · heads +
// r / rows_of_head) · row_blocks of its sample, as in dropout_mask.h; plain dropout has one row.
struct MaskCall {
  const int64_t* ids;  // [samples], on the device
  bool* mask;          // on the device
  int64_t samples, rows, columns;
  int64_t heads, rows_of_head;
  int64_t row_blocks;
  uint64_t key;
  uint32_t threshold;
  void* stream;  // cudaStream_t
};

// Philox blocks of four elements each that make the mask.
constexpr int64_t num_blocks(const MaskCall& call) {
  return call.samples * call.rows * ((call.columns + 3) / 4);
}

// What one thread of the kernel does: draws block `i` of num_blocks(). The test runs it on the CPU.
constexpr void draw_block(const MaskCall& call, int64_t i) {
  const int64_t of_row = (call.columns + 3) / 4;
  const int64_t block = i % of_row, row = i / of_row % call.rows, sample = i / of_row / call.rows;
  const int64_t place = row % call.rows_of_head * call.heads + row / call.rows_of_head;
  const auto counter = static_cast<uint64_t>(place * call.row_blocks + block);
  const auto id = static_cast<uint64_t>(call.ids[sample]);
  const auto values =
      philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
              static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32)},
             {static_cast<uint32_t>(call.key), static_cast<uint32_t>(call.key >> 32)});
  bool* const kept = call.mask + (sample * call.rows + row) * call.columns + block * 4;
  const int64_t left = call.columns - block * 4;
  for (int64_t e = 0; e < 4 && e < left; ++e) {
    kept[e] = values[static_cast<size_t>(e)] >= call.threshold;
  }
}

// Starts the kernel. Returns the error of the launch; null: none.
const char* start_mask(const MaskCall& call);

}  // namespace tanren::cuda
