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
  // Takes the loss of the next update. Returns false if the finder must end with this update: its
  // loss is not finite, or the average with Lightning's correction is above 4 × its lowest value
  // before. If that value is not above 0, the finder continues.
  bool add(double loss);

  // The average with fastai's correction: average / (1 − 0.98^n) after n losses. Not finite after
  // a loss that is not finite.
  const std::vector<double>& smoothed() const { return smoothed_; }
  // The average with Lightning's correction: average / (1 − 0.98^(n + 1)). It is too low at the
  // beginning.
  const std::vector<double>& lightning() const { return lightning_; }

 private:
  double average_ = 0;
  double lowest_ = 0;
  std::vector<double> smoothed_, lightning_;
};

// Indices of updates. Empty if there are too few losses; `valley` also if they do not fall.
struct RateSuggestion {
  // The update at which Lightning's average falls fastest, by its derivative with respect to the
  // rate. The first ten updates and the last one are ignored. Noise at low rates has the most
  // weight, because there the rates are close together.
  std::optional<size_t> steepest;
  // fastai's valley: the middle of the longest fall of the average, by the number of updates. The
  // first ten updates and the last five are ignored; if the last loss is not finite, only that one
  // is ignored instead of the last five.
  std::optional<size_t> valley;
};

// `rates`: of the losses that `trend` has taken; they rise.
RateSuggestion suggest_rates(const std::vector<double>& rates, const LossTrend& trend);

}  // namespace tanren
