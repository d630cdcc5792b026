// Generation with a language model. Each token is a pure function of the scores, the request and
// the token's index, so a generated text can be reproduced bitwise. Called by the models' tasks.
#pragma once

#include "tanren/base/task.h"

#include <functional>
#include <limits>

namespace tanren {

// Draws the next token from scores [tokens] over the vocabulary: temperature first, then top_k,
// then top_p (Holtzman et al., 2020). Ties go to the lower token. Uses draw number `index` of
// request.seed.
int64_t draw_token(const at::Tensor& scores, const GenerateRequest& request, int64_t index);

// Index of the first token that a model with `context` positions sees of a sequence of `length`
// tokens. It is 0 while the sequence fits. After that the window moves in jumps of half a context,
// so that a cache stays valid for many tokens.
int64_t window_begin(int64_t length, int64_t context);

// `next_scores(tokens, begin)` gives the scores after tokens[begin …]; called once a token.
using NextScores = std::function<at::Tensor(const std::vector<int64_t>& tokens, int64_t begin)>;

// Returns request.prompt and up to request.tokens drawn tokens. ConfigError if the prompt is empty
// or holds a token outside [0, vocab).
std::vector<int64_t> generate(const GenerateRequest& request, int64_t context, int64_t vocab,
                              const NextScores& next_scores);

// A language model that caches what it needs of the tokens already read: keys and values, or a
// recurrent state.
class TokenReader {
 public:
  virtual ~TokenReader() = default;
  virtual void forget() = 0;                         // as if nothing had been read
  virtual void reorder(const at::Tensor& rows) = 0;  // int64 [m]: row i becomes the old row rows[i]
  // Reads T more tokens, ids int64 [n, T] on the CPU. Returns the next token's scores, [n, vocab]
  // or wider.
  virtual at::Tensor read(const at::Tensor& ids) = 0;
};

// The same with a reader; uses beam search if request.num_beams is above 1. ConfigError also if
// stop_token is vocab or more. A model without positions has the context kNoContext.
inline constexpr int64_t kNoContext = std::numeric_limits<int64_t>::max();
std::vector<int64_t> generate(const GenerateRequest& request, int64_t context, int64_t vocab,
                              TokenReader& reader);

}  // namespace tanren
