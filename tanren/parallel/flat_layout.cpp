#include "tanren/parallel/flat_layout.h"

#include <algorithm>

namespace tanren {

namespace {

int64_t whole_units(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Places the bucket's members one after the other; its size is padded to equal parts.
void place_members(FlatLayout& layout, size_t index, const LayoutOptions& options) {
  constexpr int64_t kAlignedFrom = 16;  // units: smaller parameters would be mostly padding
  FlatLayout::Bucket& bucket = layout.buckets[index];
  int64_t size = 0;
  for (const size_t member : bucket.members) {
    FlatLayout::Place& place = layout.places[member];
    if (place.numel >= kAlignedFrom * options.unit) size = whole_units(size, options.unit);
    place.bucket = index;
    place.offset = size;
    size += place.numel;
  }
  bucket.size = whole_units(size, options.parts * options.unit);
}

}  // namespace

bool LayoutOptions::is_alone(size_t parameter) const {
  return std::find(alone.begin(), alone.end(), parameter) != alone.end();
}

FlatLayout lay_out(const std::vector<at::Tensor>& parameters, const LayoutOptions& options) {
  FlatLayout layout;
  layout.places.resize(parameters.size());
  auto& buckets = layout.buckets;
  std::vector<int64_t> filled;  // bytes of each bucket
  // The number, from 1 on, of the bucket that a parameter may join; 0: none. This is the last
  // bucket. If ranks share the state, the parameters lie in the same layout, so it is the last
  // bucket whose parameters have the same dtype.
  const auto candidate = [&](const at::Tensor& parameter) {
    size_t index = buckets.size();
    while (index > 0 && options.parts > 1 &&
           parameters[buckets[index - 1].members.front()].scalar_type() !=
               parameter.scalar_type()) {
      --index;
    }
    return index;
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters[i];
    const at::ScalarType dtype = parameter.grad_dtype().value_or(parameter.scalar_type());
    layout.places[i].numel = parameter.numel();
    const auto bytes = parameter.numel() * static_cast<int64_t>(c10::elementSize(dtype));
    const int64_t most = buckets.size() <= 1 ? options.first_bucket_bytes : options.bucket_bytes;
    size_t index = candidate(parameter);
    const bool joins = index > 0 && buckets[index - 1].dtype == dtype &&
                       filled[index - 1] + bytes <= most && !options.is_alone(i) &&
                       !options.is_alone(buckets[index - 1].members.front());
    if (!joins) {
      buckets.push_back({dtype, 0, {}});
      filled.push_back(0);
      index = buckets.size();
    }
    filled[index - 1] += bytes;
    buckets[index - 1].members.push_back(i);
  }
  for (size_t i = 0; i < layout.buckets.size(); ++i) {
    auto& members = layout.buckets[i].members;
    std::reverse(members.begin(), members.end());
    place_members(layout, i, options);
  }
  return layout;
}

std::vector<Slice> slices_of(const FlatLayout& layout, int64_t rank, int64_t parts) {
  std::vector<Slice> slices;
  for (size_t i = 0; i < layout.places.size(); ++i) {
    const FlatLayout::Place& place = layout.places[i];
    const int64_t part = layout.buckets[place.bucket].size / parts;
    const int64_t first = rank * part;
    const int64_t begin = std::max(first, place.offset);
    const int64_t end = std::min(first + part, place.offset + place.numel);
    if (begin >= end) continue;
    slices.push_back({i, place.bucket, begin - place.offset, end - place.offset, begin - first});
  }
  return slices;
}

}  // namespace tanren
