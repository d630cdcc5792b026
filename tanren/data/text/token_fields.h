// Token data given as tensors: "inputs" int64 [n, T]; "token_types" and "attention_mask" of the
// same shape if a model reads them; "labels" with one class a sample or one token for each input
// token. Called by the kinds tensors and synthetic.
#pragma once

#include "tanren/data/dataset.h"

#include <string>

namespace tanren {

// If "inputs" are whole numbers [n, T]: makes them and "token_types" int64, and sets
// info.vocab_size and info.token_types to one more than the largest. If "labels" are whole numbers
// of the same shape, they are one token each, -100 for no label; then sets info.outputs and returns
// true. DataError naming the tensor, beginning with `where`, for negative numbers and shapes that
// differ.
bool describe_tokens(TensorMap& fields, DataInfo& info, const std::string& where);

// Adds the count "tokens" to a batch of tokens whose labels are one token for each input token.
void count_tokens(const DataInfo& info, Collated& collated);

}  // namespace tanren
