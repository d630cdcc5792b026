// Decides which samples share a batch, so that little is padded and the tensors of a batch have one
// shape. Pure functions of the samples. Called by WindowPredictor and Predictor.
#pragma once

#include "tanren/predict/encoder.h"

#include <cstdint>
#include <vector>

namespace tanren {

// Places 0 to lengths.size() - 1 in batches of at most `size`: sorted by length (equal ones keep
// their order), and cut where padding and the number of batches cost least together.
std::vector<std::vector<int64_t>> batches_by_length(const std::vector<int64_t>& lengths,
                                                    int64_t size);

// The samples at `places` in batches of at most `size`: texts by length, tensors beside those of
// the same fields and shapes, in the order in which a shape comes first.
std::vector<std::vector<int64_t>> batches_of(const EncodedSamples& samples,
                                             const std::vector<int64_t>& places, int64_t size);

}  // namespace tanren
