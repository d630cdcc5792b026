// Generation with a language model: tokens drawn one after another, each a pure function of the
// scores, the request and its index, so that a sample repeats bitwise. Called by the tasks of models.
#pragma once

#include "tanren/base/task.h"

#include <functional>
#include <limits>

namespace tanren {

// The next token by scores [tokens] over the vocabulary. Temperature first, then top_k, then top_p
// (Holtzman et al., 2020), ties to the lower token; the draw is number `index` of request.seed.
int64_t draw_token(const at::Tensor& scores, const GenerateRequest& request, int64_t index);

// Where the window of a sequence of `length` tokens begins that a model with `context` positions
// sees: 0 while it fits, then in jumps of half a context, so that a cache serves many tokens.
int64_t window_begin(int64_t length, int64_t context);

// `next_scores(tokens, begin)` gives the scores after tokens[begin …]; called once a token.
using NextScores = std::function<at::Tensor(const std::vector<int64_t>& tokens, int64_t begin)>;

// request.prompt and up to request.tokens more, drawn. ConfigError if the prompt is empty or holds a token
// outside [0, vocab).
std::vector<int64_t> generate(const GenerateRequest& request, int64_t context, int64_t vocab,
                              const NextScores& next_scores);

// A language model that keeps what it needs of the tokens that it has read: keys and values, or a
// state.
class TokenReader {
 public:
  virtual ~TokenReader() = default;
  virtual void forget() = 0;                         // as if nothing had been read
  virtual void reorder(const at::Tensor& rows) = 0;  // int64 [m]: row i becomes what rows[i] was
  // ids int64 [n, T] more, on the CPU → scores of the next token, [n, vocab or more].
  virtual at::Tensor read(const at::Tensor& ids) = 0;
};

// The same with a reader, by beam search where request.num_beams is above 1; ConfigError also for a
// stop_token that the data has not. A model without positions has the context kNoContext.
inline constexpr int64_t kNoContext = std::numeric_limits<int64_t>::max();
std::vector<int64_t> generate(const GenerateRequest& request, int64_t context, int64_t vocab,
                              TokenReader& reader);

}  // namespace tanren
