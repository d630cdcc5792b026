// Beam search: each step keeps the num_beams most probable continuations of a prompt, and the best
// one is returned. Gives the same tokens as transformers' generate(num_beams, length_penalty,
// do_sample=False, early_stopping=False). Called by generate().
#pragma once

#include "tanren/model/generate.h"

#include <vector>

namespace tanren {

// Returns the prompt and its best continuation: up to request.tokens tokens, fewer if a text that
// ends with request.stop_token scores better. request is already checked; `reader` must be empty.
std::vector<int64_t> beam_search(const GenerateRequest& request, int64_t context, int64_t vocab,
                                 TokenReader& reader);

}  // namespace tanren
