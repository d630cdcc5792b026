#include "tanren/model/beam_search.h"

#include "tanren/base/error.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tanren {
namespace {

struct Beam {
  std::vector<int64_t> tokens;
  double score = 0;  // sum of log probabilities; if finished, over length ^ length_penalty
};

struct Candidate {
  size_t beam = 0;
  int64_t token = 0;
  double score = 0;
};

class BeamSearch {
 public:
  BeamSearch(const GenerateRequest& request, int64_t context, int64_t vocab, TokenReader& reader)
      : request_(request),
        context_(context),
        vocab_(vocab),
        width_(static_cast<size_t>(request.num_beams)),
        reader_(reader) {}

  std::vector<int64_t> run() {
    running_ = {{request_.prompt, 0.0}};
    for (int64_t step = 1; step <= request_.tokens && !running_.empty(); ++step) {
      const auto best = candidates();
      const bool last = step == request_.tokens;
      finish(best, step, last);
      if (last) break;
      go_on(best);
      if (!can_improve(step)) break;
    }
    return finished_.empty() ? request_.prompt : finished_.front().tokens;
  }

 private:
  // The 2 · num_beams best ways to add a token to a running beam, the best first: enough that
  // num_beams of them continue even if every beam's best token is the stop token.
  std::vector<Candidate> candidates() {
    const at::Tensor scores = next_scores().slice(1, 0, vocab_).to(at::kFloat).log_softmax(1);
    const at::Tensor host = scores.to(at::kCPU).contiguous();
    const auto* values = host.const_data_ptr<float>();
    std::vector<Candidate> all;
    all.reserve(running_.size() * static_cast<size_t>(vocab_));
    for (size_t beam = 0; beam < running_.size(); ++beam) {
      for (int64_t token = 0; token < vocab_; ++token) {
        const double value = *values++;
        if (std::isnan(value)) {
          throw RunError("[generate] the model's scores are not numbers; it has diverged");
        }
        all.push_back({beam, token, running_[beam].score + value});
      }
    }
    const size_t kept = std::min(2 * width_, all.size());
    const auto before = [](const Candidate& a, const Candidate& b) {
      if (a.score != b.score) return a.score > b.score;
      return std::pair(a.beam, a.token) < std::pair(b.beam, b.token);
    };
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(kept), all.end(),
                      before);
    all.resize(kept);
    return all;
  }

  // [beams, vocab]. While the window does not move, the reader reads only the new tokens.
  at::Tensor next_scores() {
    const auto length = static_cast<int64_t>(running_.front().tokens.size());
    const int64_t begin = window_begin(length, context_);
    if (begin != begin_ || read_ == 0) {
      reader_.forget();
      read_ = begin;
    } else {
      reader_.reorder(at::tensor(parents_, at::kLong));
    }
    begin_ = begin;
    std::vector<int64_t> fresh;
    for (const auto& beam : running_) {
      fresh.insert(fresh.end(), beam.tokens.begin() + read_, beam.tokens.end());
    }
    const auto rows = static_cast<int64_t>(running_.size());
    at::Tensor scores = reader_.read(at::tensor(fresh, at::kLong).view({rows, length - read_}));
    read_ = length;
    return scores;
  }

  std::vector<int64_t> extended(const Candidate& candidate) const {
    auto tokens = running_[candidate.beam].tokens;
    tokens.push_back(candidate.token);
    return tokens;
  }

  // Moves those of the num_beams best that end with the stop token (at the last step: all of them)
  // to the finished beams, scored by their length.
  void finish(const std::vector<Candidate>& best, int64_t length, bool last) {
    const double power = std::pow(static_cast<double>(length), request_.length_penalty);
    for (size_t i = 0; i < std::min(width_, best.size()); ++i) {
      if (!last && best[i].token != request_.stop_token) continue;
      finished_.push_back({extended(best[i]), best[i].score / power});
    }
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const Beam& a, const Beam& b) { return a.score > b.score; });
    if (finished_.size() > width_) finished_.resize(width_);
  }

  void go_on(const std::vector<Candidate>& best) {
    std::vector<Beam> next;
    parents_.clear();
    for (const auto& candidate : best) {
      if (candidate.token == request_.stop_token || next.size() == width_) continue;
      next.push_back({extended(candidate), candidate.score});
      parents_.push_back(static_cast<int64_t>(candidate.beam));
    }
    running_ = std::move(next);
  }

  // Whether the best running beam, at its present length, beats the worst of num_beams finished
  // beams.
  bool can_improve(int64_t length) const {
    if (finished_.size() < width_ || running_.empty()) return true;
    const double power = std::pow(static_cast<double>(length), request_.length_penalty);
    return running_.front().score / power > finished_.back().score;
  }

  const GenerateRequest& request_;
  const int64_t context_, vocab_;
  const size_t width_;
  TokenReader& reader_;
  std::vector<Beam> running_, finished_;  // the best first
  std::vector<int64_t> parents_;          // each running beam's row in the reader
  int64_t begin_ = 0, read_ = 0;          // the window's begin; tokens the reader has read
};

}  // namespace

std::vector<int64_t> beam_search(const GenerateRequest& request, int64_t context, int64_t vocab,
                                 TokenReader& reader) {
  return BeamSearch(request, context, vocab, reader).run();
}

}  // namespace tanren
