#include "tanren/model/generate.h"

#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/text.h"
#include "tanren/model/beam_search.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tanren {
namespace {

// The tokens that may come next, the most probable first, and their weights relative to the first.
struct Candidates {
  std::vector<int64_t> tokens;
  std::vector<double> weights;
};

Candidates candidates(const double* scores, int64_t count, const GenerateRequest& request) {
  Candidates result;
  result.tokens.resize(static_cast<size_t>(count));
  std::iota(result.tokens.begin(), result.tokens.end(), int64_t{0});
  const bool limited = request.top_k > 0 && request.top_k < count;
  const int64_t kept = limited ? request.top_k : count;
  std::partial_sort(
      result.tokens.begin(), result.tokens.begin() + kept, result.tokens.end(),
      [&](int64_t a, int64_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  result.tokens.resize(static_cast<size_t>(kept));
  const double highest = scores[result.tokens[0]];
  for (const int64_t token : result.tokens) {
    result.weights.push_back(std::exp((scores[token] - highest) / request.temperature));
  }
  if (request.top_p < 1) {
    const double total = std::accumulate(result.weights.begin(), result.weights.end(), 0.0);
    double held = 0;
    size_t needed = 0;
    while (needed < result.weights.size() && held < request.top_p * total) {
      held += result.weights[needed++];
    }
    result.tokens.resize(needed);
    result.weights.resize(needed);
  }
  return result;
}

void check_request(const GenerateRequest& request, int64_t vocab) {
  if (request.prompt.empty()) {
    throw ConfigError("[generate] the prompt is empty; set generate.prompt");
  }
  for (const int64_t token : request.prompt) {
    if (token < 0 || token >= vocab) {
      throw ConfigError(
          fmt::format("[generate] the prompt holds token {}, and the data has tokens 0 to {}; fix "
                      "generate.prompt",
                      token, vocab - 1));
    }
  }
  if (request.stop_token >= vocab) {
    throw ConfigError(fmt::format(
        "[generate] stop_token is {}, and the data has tokens 0 to {}; fix generate.stop_token",
        request.stop_token, vocab - 1));
  }
}

// How many tokens may be drawn. If the vocabulary is larger than the tokenizer's, its last numbers
// are not tokens.
int64_t drawable(const GenerateRequest& request, int64_t vocab) {
  return request.vocab > 0 ? std::min(request.vocab, vocab) : vocab;
}

}  // namespace

int64_t draw_token(const at::Tensor& scores, const GenerateRequest& request, int64_t index) {
  const at::Tensor host = scores.to(at::kCPU, at::kDouble).contiguous();
  const auto* values = host.const_data_ptr<double>();
  const int64_t count = host.numel();
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) {
      throw RunError("[generate] the model's scores are not numbers; it has diverged");
    }
  }
  if (request.temperature == 0) return std::max_element(values, values + count) - values;
  const Candidates next = candidates(values, count, request);
  const double total = std::accumulate(next.weights.begin(), next.weights.end(), 0.0);
  constexpr uint64_t kStream = 0x67656E;  // separate from the draws of training
  const uint64_t bits = random_bits(request.seed, kStream, static_cast<uint64_t>(index));
  double left = static_cast<double>(bits >> 11) * 0x1p-53 * total;
  for (size_t i = 0; i < next.tokens.size(); ++i) {
    left -= next.weights[i];
    if (left < 0) return next.tokens[i];
  }
  return next.tokens.back();
}

int64_t window_begin(int64_t length, int64_t context) {
  if (length <= context) return 0;
  const int64_t jump = std::max<int64_t>(context / 2, 1);
  return (length - context + jump - 1) / jump * jump;
}

std::vector<int64_t> generate(const GenerateRequest& request, int64_t context, int64_t vocab,
                              const NextScores& next_scores) {
  check_request(request, vocab);
  std::vector<int64_t> tokens = request.prompt;
  for (int64_t i = 0; i < request.tokens; ++i) {
    const int64_t begin = window_begin(static_cast<int64_t>(tokens.size()), context);
    const at::Tensor scores = next_scores(tokens, begin).slice(0, 0, drawable(request, vocab));
    tokens.push_back(draw_token(scores, request, i));
    if (request.see) request.see(tokens.back());
    if (tokens.back() == request.stop_token) break;
  }
  return tokens;
}

std::vector<int64_t> generate(const GenerateRequest& request, int64_t context, int64_t vocab,
                              TokenReader& reader) {
  check_request(request, vocab);
  if (request.num_beams > 1) {
    return beam_search(request, context, drawable(request, vocab), reader);
  }
  int64_t from = -1, seen = 0;
  return generate(request, context, vocab, [&](const std::vector<int64_t>& tokens, int64_t begin) {
    if (begin != from) {
      reader.forget();
      seen = begin;
    }
    from = begin;
    const std::vector<int64_t> fresh(tokens.begin() + seen, tokens.end());
    seen = static_cast<int64_t>(tokens.size());
    return reader.read(at::tensor(fresh, at::kLong).unsqueeze(0)).select(0, 0);
  });
}

}  // namespace tanren
