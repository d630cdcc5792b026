// Which samples of a dataset calibrate, and the batches that they make. A dataset may give fewer
// samples than it was asked for, and none of some. Called by quantize_model.h, quantize_file.h
// and layer_choice.h.
#pragma once

#include "tanren/data/dataset.h"

#include <cstdint>
#include <vector>

namespace tanren {

// At most `most` numbers of [0, size), as far apart as they can be: files of images lie class by
// class.
std::vector<int64_t> spread_over(int64_t size, int64_t most);

// The samples `numbers` in their order, requested `at_once` at a time. Empty batches are left out.
// Errors as collated.
std::vector<Collated> batches_of(const Dataset& dataset, const std::vector<int64_t>& numbers,
                                 int64_t at_once);

// How many samples the batches have. InputError if they are fewer than kFewestSamples.
int64_t checked_count(const std::vector<Collated>& batches);

// A batch of the first `wanted` samples of `numbers` that the dataset gives. InputError if it gives
// fewer even when all are requested in one batch.
Batch first_given(const Dataset& dataset, const std::vector<int64_t>& numbers, int64_t wanted);

}  // namespace tanren
