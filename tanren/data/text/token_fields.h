// Token data that comes as tensors: "inputs" int64 [n, T], with "token_types" and "attention_mask" of
// the same shape where a model reads them, and "labels" a class each or a token each.
// Called by the kinds tensors and synthetic.
#pragma once

#include "tanren/data/dataset.h"

#include <string>

namespace tanren {

// If "inputs" are whole numbers [n, T]: makes them and "token_types" int64, fills info.vocab_size and
// info.token_types (one more than the largest), and takes "labels" of the same shape as a token each,
// -100 where there is none: then returns true. DataError naming the tensor, beginning with `where`,
// for negative numbers and shapes that differ.
bool describe_tokens(TensorMap& fields, DataInfo& info, const std::string& where);

// Adds the count "tokens" to a batch of tokens whose labels are a token each.
void count_tokens(const DataInfo& info, Collated& collated);

}  // namespace tanren
