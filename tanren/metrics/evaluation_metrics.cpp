#include "tanren/metrics/evaluation_metrics.h"

#include "tanren/base/device_reads.h"
#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/comm/exchange.h"
#include "tanren/metrics/score_rows.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tanren {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_of_values(MetricKind kind) {
  return kind == MetricKind::mse || kind == MetricKind::mae || kind == MetricKind::r2;
}

bool is_of_pictures(MetricKind kind) {
  return kind == MetricKind::psnr || kind == MetricKind::ssim;
}

bool is_of_classes(MetricKind kind) {
  return !is_of_values(kind) && !is_of_pictures(kind) && !is_of_text(kind) &&
         kind != MetricKind::perplexity;
}

double share_of(MetricKind kind, const ClassReport& one) {
  return kind == MetricKind::precision ? one.precision
         : kind == MetricKind::recall  ? one.recall
                                       : one.f1;
}

// Precision, recall or F1 over all classes.
double average(const MetricName& metric, const ClassCounts::Result& counts) {
  const auto& classes = counts.classes;
  if (counts.targets == 0) return kNan;
  if (metric.averaging == ClassAverage::binary) return share_of(metric.kind, classes.at(1));
  double sum = 0, occurring = 0, both = 0, targets = 0, predictions = 0;
  for (size_t i = 0; i < classes.size(); ++i) {
    both += counts.both[i];
    targets += static_cast<double>(classes[i].targets);
    predictions += static_cast<double>(classes[i].predictions);
    if (classes[i].targets + classes[i].predictions == 0) continue;
    sum += share_of(metric.kind, classes[i]);
    ++occurring;
  }
  if (metric.averaging == ClassAverage::macro) return sum / occurring;
  const double whole = metric.kind == MetricKind::precision ? predictions
                       : metric.kind == MetricKind::recall  ? targets
                                                            : (targets + predictions) / 2;
  return whole > 0 ? both / whole : 0;
}

double cross_entropy_of(const NamedValues& terms, const std::string& metric) {
  for (const auto& [name, value] : terms) {
    if (name == "cross_entropy") return value;
  }
  throw ConfigError("[metrics] " + metric +
                    " needs a term named cross_entropy, and this task has none; drop it from "
                    "evaluate.metrics");
}

// A metric per byte or word of the text: divides the sum of `cross_entropy`, which is a mean per
// token, by another count.
double of_text_value(MetricKind kind, double cross_entropy, const Counts& counts,
                     const std::string& metric) {
  const char* unit = kind == MetricKind::word_perplexity ? "words" : "bytes";
  const auto found = counts.find(unit), tokens = counts.find("tokens");
  if (found == counts.end() || tokens == counts.end()) {
    throw ConfigError(fmt::format(
        "[metrics] {} needs the {} of the text, which these data do not count; name the byte-level "
        "tokenizer of the ids in data.train.tokenizer, or drop it from evaluate.metrics",
        metric, unit));
  }
  if (found->second == 0) return kNan;
  const double mean = cross_entropy * (tokens->second / found->second);
  return kind == MetricKind::bits_per_byte ? mean / std::log(2.0) : std::exp(mean);
}

}  // namespace

EvaluationMetrics::EvaluationMetrics(std::vector<std::string> names, at::Device device)
    : device_(device) {
  for (auto& name : names) {
    const auto metric = metric_named(name);
    if (!metric) {
      throw ConfigError("[metrics] unknown metric \"" + name + "\"; " + metric_advice(name));
    }
    if (metric->kind == MetricKind::top_k) ks_.push_back(metric->k);
    of_values_ = of_values_ || is_of_values(metric->kind);
    of_classes_ = of_classes_ || is_of_classes(metric->kind);
    metrics_.push_back({std::move(name), *metric});
  }
  if (wants(MetricKind::psnr) || wants(MetricKind::ssim)) {
    quality_.emplace(wants(MetricKind::ssim));
  }
}

bool EvaluationMetrics::wants(MetricKind kind) const {
  return std::any_of(metrics_.begin(), metrics_.end(),
                     [&](const Named& named) { return named.metric.kind == kind; });
}

void EvaluationMetrics::start_classes(int64_t classes, at::Device device) {
  classes_ = classes;
  for (const auto& [name, metric] : metrics_) {
    const auto reason = is_of_classes(metric.kind) ? misfit_of_classes(name, classes) : "";
    if (!reason.empty()) {
      throw ConfigError("[metrics] " + name + " " + reason + "; change evaluate.metrics");
    }
  }
  ClassCountsOptions options{.ks = ks_, .confusion_matrix = wants(MetricKind::confusion_matrix)};
  options.per_class = options.confusion_matrix || wants(MetricKind::precision) ||
                      wants(MetricKind::recall) || wants(MetricKind::f1) ||
                      wants(MetricKind::auroc);
  counts_.emplace(std::move(options), classes, device);
  if (wants(MetricKind::auroc)) auroc_.emplace(classes, device);
}

void EvaluationMetrics::add(const at::Tensor& outputs, const at::Tensor& targets) {
  if (!(of_classes_ || of_values_ || quality_) || targets.numel() == 0) return;
  const at::NoGradGuard no_grad;
  const auto scores = outputs.detach();
  const bool floating = targets.is_floating_point();
  if (of_values_) {
    if (!floating) {
      throw ConfigError(
          "[metrics] mse, mae and r2 need values as targets, and these are class labels; change "
          "evaluate.metrics");
    }
    errors_.add(scores, targets);
  }
  if (quality_) quality_->add(scores, targets);
  if (!of_classes_) return;
  const auto use = [this](const at::Tensor& rows, const at::Tensor& labels) {
    if (!counts_) start_classes(rows.size(1), rows.device());
    counts_->add(rows, labels);
    if (auroc_) auroc_->add(rows, labels);
  };
  if (!floating) {
    for_rows(scores, targets, use);
    return;
  }
  const auto many = std::find_if(ks_.begin(), ks_.end(), [](int64_t k) { return k != 1; });
  if (many != ks_.end()) {
    throw ConfigError(fmt::format(
        "[metrics] top{} needs class labels, and the targets are floating values; use accuracy",
        *many));
  }
  for_binary_rows(scores, targets, use);
}

double EvaluationMetrics::value_of(const MetricName& metric, const ClassCounts::Result& counts,
                                   const NamedValues& terms, const Counts& of_text) const {
  if (metric.kind == MetricKind::perplexity) return std::exp(cross_entropy_of(terms, "perplexity"));
  if (is_of_text(metric.kind)) {
    const auto named = std::find_if(metrics_.begin(), metrics_.end(), [&](const Named& one) {
      return one.metric.kind == metric.kind;
    });
    return of_text_value(metric.kind, cross_entropy_of(terms, named->name), of_text, named->name);
  }
  if (counts.targets == 0) return kNan;
  if (metric.kind != MetricKind::top_k) return average(metric, counts);
  const auto index = std::find(ks_.begin(), ks_.end(), metric.k) - ks_.begin();
  return counts.hits[static_cast<size_t>(index)] / counts.targets;
}

void EvaluationMetrics::join_over(Communicator& ranks) {
  if (ranks.world_size() == 1) return;
  if (of_classes_) {
    int64_t classes = 0;
    for (const auto& text : gather_texts(ranks, to_text(classes_))) {
      classes = std::max<int64_t>(classes, std::stoll(text));
    }
    if (classes > 0) {
      if (!counts_) start_classes(classes, device_);
      counts_->join_over(ranks);
      if (auroc_) auroc_->join_over(ranks);
    }
  }
  if (of_values_) errors_.join_over(ranks);
  if (quality_) quality_->join_over(ranks);
}

EvaluationReport EvaluationMetrics::result(const NamedValues& terms, const Counts& of_data) const {
  std::vector<at::Tensor> parts;
  if (counts_) parts.push_back(counts_->values());
  const int64_t num_counts = counts_ ? parts.back().numel() : 0;
  if (auroc_) parts.push_back(auroc_->values());
  const int64_t num_ranks = auroc_ ? parts.back().numel() : 0;
  if (of_values_) parts.push_back(errors_.values().to(device_));
  if (quality_) parts.push_back(quality_->values().to(device_));
  std::vector<double> host;
  if (!parts.empty()) host = read_to_host(at::cat(parts));

  EvaluationReport report;
  const auto counts = counts_ ? counts_->result(host.data()) : ClassCounts::Result();
  report.classes = counts.classes;
  report.confusion_matrix = counts.confusion_matrix;
  Auroc::Result ranks{.mean = kNan};
  if (auroc_) {
    ranks = auroc_->result(host.data() + num_counts);
    report.auroc_error = ranks.error;
    for (size_t i = 0; i < report.classes.size(); ++i) report.classes[i].auroc = ranks.classes[i];
  }
  const double* errors = host.data() + num_counts + num_ranks;
  const double* quality = errors + (of_values_ ? 3 : 0);
  for (const auto& [name, metric] : metrics_) {
    double value = 0;
    switch (metric.kind) {
      case MetricKind::confusion_matrix: continue;  // has no single number
      case MetricKind::auroc: value = ranks.mean; break;
      case MetricKind::mse: value = errors[0]; break;
      case MetricKind::mae: value = errors[1]; break;
      case MetricKind::r2: value = errors[2]; break;
      case MetricKind::psnr: value = quality[0]; break;
      case MetricKind::ssim: value = quality[1]; break;
      default: value = value_of(metric, counts, terms, of_data);
    }
    report.values.emplace_back(name, value);
  }
  return report;
}

}  // namespace tanren
