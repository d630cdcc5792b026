#include "tanren/base/metric_names.h"

#include "tanren/base/text.h"

#include <charconv>
#include <utility>

namespace tanren {

namespace {

constexpr std::pair<std::string_view, MetricKind> kPlain[] = {
    {"auroc", MetricKind::auroc},
    {"confusion_matrix", MetricKind::confusion_matrix},
    {"mse", MetricKind::mse},
    {"mae", MetricKind::mae},
    {"r2", MetricKind::r2},
    {"perplexity", MetricKind::perplexity},
    {"psnr", MetricKind::psnr},
    {"ssim", MetricKind::ssim},
    {"byte_perplexity", MetricKind::byte_perplexity},
    {"bits_per_byte", MetricKind::bits_per_byte},
    {"word_perplexity", MetricKind::word_perplexity},
};
constexpr std::pair<std::string_view, MetricKind> kAveraged[] = {
    {"precision", MetricKind::precision}, {"recall", MetricKind::recall}, {"f1", MetricKind::f1}};
constexpr std::pair<std::string_view, ClassAverage> kAveragings[] = {
    {"binary", ClassAverage::binary},
    {"macro", ClassAverage::macro},
    {"micro", ClassAverage::micro}};

}  // namespace

std::optional<MetricName> metric_named(std::string_view name) {
  if (name == "accuracy") return MetricName{};
  for (const auto& [plain, kind] : kPlain) {
    if (name == plain) return MetricName{.kind = kind};
  }
  for (const auto& [stem, kind] : kAveraged) {
    if (name.size() <= stem.size() || name.substr(0, stem.size() + 1) != std::string(stem) + "_") {
      continue;
    }
    for (const auto& [word, averaging] : kAveragings) {
      if (name.substr(stem.size() + 1) == word) return MetricName{kind, averaging};
    }
  }
  if (name.substr(0, 3) != "top") return std::nullopt;
  MetricName top;
  const char* end = name.data() + name.size();
  const auto [read, error] = std::from_chars(name.data() + 3, end, top.k);
  if (error != std::errc() || read != end || top.k < 1) return std::nullopt;
  return top;
}

std::string metric_advice(std::string_view name) {
  for (const auto& [stem, kind] : kAveraged) {
    if (name != stem) continue;
    const std::string word(stem);
    return fmt::format(
        "say how classes are averaged: {}_macro, {}_micro, or {}_binary (of class 1)", word, word,
        word);
  }
  return "known are accuracy, top<k> (top5), precision_, recall_ and f1_ with binary, macro or "
         "micro, "
         "auroc, confusion_matrix, mse, mae, r2, perplexity, byte_perplexity, bits_per_byte, "
         "word_perplexity, psnr, ssim";
}

std::vector<std::string> class_metrics() {
  return {"accuracy", "top*", "precision_*", "recall_*", "f1_*", "auroc", "confusion_matrix"};
}

std::vector<std::string> value_metrics() { return {"mse", "mae", "r2"}; }

std::vector<std::string> picture_metrics() { return {"psnr", "ssim"}; }

std::vector<std::string> text_metrics() {
  return {"byte_perplexity", "bits_per_byte", "word_perplexity"};
}

bool is_of_text(MetricKind kind) {
  return kind == MetricKind::byte_perplexity || kind == MetricKind::bits_per_byte ||
         kind == MetricKind::word_perplexity;
}

std::string misfit_of_classes(std::string_view name, int64_t classes) {
  const auto metric = metric_named(name);
  if (!metric) return metric_advice(name);
  const auto number = to_text(classes);
  if (metric->kind == MetricKind::top_k && metric->k > classes) {
    return fmt::format("needs {} classes, the model has {}", metric->k, number);
  }
  if (metric->averaging == ClassAverage::binary && classes != 2) {
    return "needs two classes, the model has " + number;
  }
  const bool is_table =
      metric->kind == MetricKind::auroc || metric->kind == MetricKind::confusion_matrix;
  if (is_table && classes > kMaxTableClasses) {
    return fmt::format("takes at most {} classes, the model has {}", kMaxTableClasses, number);
  }
  return "";
}

std::optional<bool> lower_is_better(std::string_view name) {
  if (name == "loss") return true;
  const auto metric = metric_named(name);
  if (!metric || metric->kind == MetricKind::confusion_matrix) return std::nullopt;
  return metric->kind == MetricKind::mse || metric->kind == MetricKind::mae ||
         metric->kind == MetricKind::perplexity || is_of_text(metric->kind);
}

}  // namespace tanren
