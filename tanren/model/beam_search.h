// Beam search: of all the texts that could follow a prompt, the num_beams most probable so far are
// kept at each step, and the best is what comes out. The same tokens as transformers'
// generate(num_beams, length_penalty, do_sample=False, early_stopping=False). Called by generate().
#pragma once

#include "tanren/model/generate.h"

#include <vector>

namespace tanren {

// The continuation of request.prompt (which is checked already) by up to request.tokens tokens, with
// the prompt, to request.stop_token where that is better. `reader` has read nothing yet.
std::vector<int64_t> beam_search(const GenerateRequest& request, int64_t context, int64_t vocab,
                                 TokenReader& reader);

}  // namespace tanren
