#include "tanren/metrics/evaluation_metrics.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

namespace tanren {

namespace {

int64_t k_of(const std::string& name) {
  if (name == "accuracy") return 1;
  int64_t k = 0;
  if (name.compare(0, 3, "top") == 0) {
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + 3, end, k);
    if (parsed.ec == std::errc() && parsed.ptr == end && k > 0) return k;
  }
  throw ConfigError("[metrics] unknown metric \"" + name +
                    "\"; evaluate.metrics takes accuracy and top<k> (top5)");
}

template <typename... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace

EvaluationMetrics::EvaluationMetrics(std::vector<std::string> names, at::Device device)
    : names_(std::move(names)) {
  for (const auto& name : names_) ks_.push_back(k_of(name));
  const auto count = static_cast<int64_t>(names_.size());
  hits_ = at::zeros({count}, at::TensorOptions(at::kLong).device(device));
}

void EvaluationMetrics::add(const at::Tensor& outputs, const at::Tensor& targets) {
  if (names_.empty() || targets.numel() == 0) return;
  const at::NoGradGuard no_grad;
  if (targets.is_floating_point()) {
    add_binary(outputs, targets);
  } else {
    add_classes(outputs, targets);
  }
  targets_ += targets.numel();
}

void EvaluationMetrics::add_classes(const at::Tensor& outputs, const at::Tensor& targets) {
  auto expected = targets.sizes().vec();
  if (outputs.dim() > 1) expected.insert(expected.begin() + 1, outputs.size(1));
  if (outputs.dim() < 2 || outputs.sizes() != at::IntArrayRef(expected)) {
    throw RunError(text("[metrics] outputs ", outputs.sizes(), " do not fit targets ",
                        targets.sizes(), "; predict must return scores [n, classes, …]"));
  }
  const int64_t classes = outputs.size(1);
  for (size_t i = 0; i < ks_.size(); ++i) {
    if (ks_[i] > classes) {
      throw ConfigError(text("[metrics] ", names_[i], " needs ", ks_[i], " classes, the model has ",
                             classes, "; lower it in evaluate.metrics"));
    }
  }
  const auto labels = targets.to(at::kLong).unsqueeze(1);
  const auto scores = outputs.detach();
  const auto own = scores.gather(1, labels);
  std::vector<int64_t> along_classes(scores.dim(), 1);
  along_classes[1] = classes;
  const auto index = at::arange(classes, labels.options()).view(along_classes);
  const auto ahead = scores.gt(own).logical_or_(scores.eq(own).logical_and_(index.lt(labels)));
  const auto sound = scores.isnan().any(1).logical_not_();
  const auto rank = ahead.sum(1);
  for (size_t i = 0; i < ks_.size(); ++i) {
    hits_.select(0, static_cast<int64_t>(i)).add_(rank.lt(ks_[i]).logical_and_(sound).sum());
  }
}

void EvaluationMetrics::add_binary(const at::Tensor& outputs, const at::Tensor& targets) {
  const auto other = std::find_if(ks_.begin(), ks_.end(), [](int64_t k) { return k != 1; });
  if (other != ks_.end()) {
    throw ConfigError("[metrics] " + names_[static_cast<size_t>(other - ks_.begin())] +
                      " needs class labels, and the targets are floating values; use accuracy");
  }
  if (outputs.sizes() != targets.sizes()) {
    throw RunError(text("[metrics] outputs ", outputs.sizes(), " do not fit targets ",
                        targets.sizes(), "; predict must return one value per target"));
  }
  const auto hit = outputs.detach()
                       .gt(0)
                       .eq(targets.gt(0.5))
                       .logical_and_(outputs.detach().isnan().logical_not_());
  hits_.add_(hit.sum());
}

NamedValues EvaluationMetrics::result() const {
  NamedValues values;
  if (names_.empty()) return values;
  const auto hits = read_to_host(hits_.to(at::kDouble));
  for (size_t i = 0; i < names_.size(); ++i) {
    const double share = targets_ > 0 ? hits[i] / static_cast<double>(targets_)
                                      : std::numeric_limits<double>::quiet_NaN();
    values.emplace_back(names_[i], share);
  }
  return values;
}

}  // namespace tanren
