// The learning-rate finder (Smith, arXiv 1506.01186): a training whose rate rises with each update
// until the loss does, and the rates that its losses suggest. The suggestions are those of
// Lightning 2.6 and of fastai 2.8 on the same losses. Pure functions. Called by the verb sweep.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace tanren {

// The rate of each update: 100 from 1e-8 to 1, each the same factor above the one before.
std::vector<double> finder_rates();

// The moving average of the losses, in which the newest one counts 2 %, corrected for its start.
class LossTrend {
 public:
  // Takes the loss of the next update. False: the finder ends with this update. Its loss is not
  // finite, or the average, as Lightning corrects it, is above 4 × its lowest value before.
  // (Below 0 that says nothing, and the finder goes on.)
  bool add(double loss);

  // As fastai corrects it: average / (1 − 0.98^n) after n losses. Not finite from the first loss
  // on that is not.
  const std::vector<double>& smoothed() const { return smoothed_; }
  // As Lightning corrects it: average / (1 − 0.98^(n + 1)). It is too low in the beginning.
  const std::vector<double>& lightning() const { return lightning_; }

 private:
  double average_ = 0;
  double lowest_ = 0;
  std::vector<double> smoothed_, lightning_;
};

// Indices of updates. Empty: there are too few losses, or they do not fall.
struct RateSuggestion {
  // Where Lightning's average falls fastest, as a derivative by the rate itself, among all but the
  // first ten updates and the last. Noise at low rates weighs most, for there rates lie close.
  std::optional<size_t> steepest;
  // fastai's valley: the middle of the longest fall of the average, by the number of updates, among
  // all but the first ten and the last five, or those before a loss that is not finite.
  std::optional<size_t> valley;
};

// `rates`: of the losses that `trend` has taken; they rise.
RateSuggestion suggest_rates(const std::vector<double>& rates, const LossTrend& trend);

}  // namespace tanren
