// FlatLayout: how parameters, their gradients and the ranks' parts of them lie in flat memory.
// Buckets are runs of whole parameters with gradients of one dtype, cut from the last parameter to
// the first, which is about the order in which backward completes gradients. If ranks share the
// state, the parameters of a bucket also have one dtype, and the bucket is padded so that it
// divides into one equal part per rank. Invariant: the same parameters and options give the same
// layout on every rank. A plain value; used by Gradients, Reducer and ShardedParameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tanren {

struct LayoutOptions {
  int64_t first_bucket_bytes = int64_t{1} << 20;  // small, so that the wire is busy early
  int64_t bucket_bytes = int64_t{25} << 20;
  int64_t parts = 1;  // one per rank that owns a part
  // In elements. Each part of a bucket begins at a multiple of `unit`, and so does each parameter
  // of 16 units or more.
  int64_t unit = 1;
  // Indices of parameters that each have a separate bucket. Ranks that hold different other
  // parameters then still divide these into the same parts.
  std::vector<size_t> alone = {};

  bool is_alone(size_t parameter) const;
};

struct FlatLayout {
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;  // of the first element in its bucket
    int64_t numel = 0;
  };
  struct Bucket {
    at::ScalarType dtype = at::kFloat;  // of the gradients
    int64_t size = 0;                   // elements, padding included
    std::vector<size_t> members;        // indices of parameters, ascending
  };
  std::vector<Place> places;    // one per parameter
  std::vector<Bucket> buckets;  // in the order of reduction: the last parameters first
};

FlatLayout lay_out(const std::vector<at::Tensor>& parameters, const LayoutOptions& options);

// A piece of a bucket that one rank owns: elements [begin, end) of a parameter, in memory order.
struct Slice {
  size_t parameter = 0;
  size_t bucket = 0;
  int64_t begin = 0, end = 0;
  int64_t offset = 0;  // of `begin` in the rank's part of the bucket
};

// All slices of a rank, in the order of the parameters.
std::vector<Slice> slices_of(const FlatLayout& layout, int64_t rank, int64_t parts);

}  // namespace tanren
