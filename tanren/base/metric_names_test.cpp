#include "tanren/base/metric_names.h"

#include "tanren/base/names.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tanren {
namespace {

TEST(MetricNames, know_no_half_and_no_misspelt_name) {
  for (const char* name :
       {"", "acuracy", "top", "top0", "top-1", "top5x", "top99999999999999999999", "f1", "f1_",
        "f1_mean", "f1macro", "precision", "loss", "AUROC"}) {
    EXPECT_FALSE(metric_named(name)) << name;
  }
  EXPECT_NE(metric_advice("f1").find("f1_macro"), std::string::npos);
  EXPECT_NE(metric_advice("topx").find("top<k>"), std::string::npos);
}

TEST(MetricNames, say_kind_averaging_and_k) {
  EXPECT_EQ(metric_named("accuracy")->k, 1);
  EXPECT_EQ(metric_named("top5")->k, 5);
  EXPECT_EQ(metric_named("recall_micro")->kind, MetricKind::recall);
  EXPECT_EQ(metric_named("recall_micro")->averaging, ClassAverage::micro);
  EXPECT_EQ(metric_named("f1_binary")->averaging, ClassAverage::binary);
  EXPECT_EQ(metric_named("auroc")->kind, MetricKind::auroc);
}

TEST(MetricNames, patterns_of_a_task_fit_its_metrics_and_no_others) {
  const auto fits = [](const std::vector<std::string>& patterns, const char* name) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const auto& pattern) { return matches(pattern, name); });
  };
  for (const char* name : {"accuracy", "top3", "f1_macro", "recall_binary", "confusion_matrix"}) {
    EXPECT_TRUE(fits(class_metrics(), name)) << name;
    EXPECT_FALSE(fits(value_metrics(), name)) << name;
  }
  for (const char* name : {"mse", "mae", "r2"}) {
    EXPECT_TRUE(fits(value_metrics(), name)) << name;
    EXPECT_FALSE(fits(class_metrics(), name)) << name;
  }
  for (const char* name : {"psnr", "ssim"}) {
    EXPECT_TRUE(fits(picture_metrics(), name)) << name;
    EXPECT_FALSE(fits(value_metrics(), name)) << name;
    EXPECT_FALSE(fits(class_metrics(), name)) << name;
  }
  EXPECT_FALSE(fits(class_metrics(), "perplexity"));
  for (const char* name : {"byte_perplexity", "bits_per_byte", "word_perplexity"}) {
    ASSERT_TRUE(metric_named(name)) << name;
    EXPECT_TRUE(is_of_text(metric_named(name)->kind)) << name;
    EXPECT_TRUE(fits(text_metrics(), name)) << name;
    EXPECT_FALSE(fits(class_metrics(), name)) << name;
    EXPECT_EQ(lower_is_better(name), true) << name;
  }
  EXPECT_FALSE(is_of_text(MetricKind::perplexity));
}

TEST(MetricNames, say_what_the_number_of_classes_forbids) {
  EXPECT_EQ(misfit_of_classes("top5", 3), "needs 5 classes, the model has 3");
  EXPECT_EQ(misfit_of_classes("f1_binary", 3), "needs two classes, the model has 3");
  EXPECT_NE(misfit_of_classes("auroc", 50257), "");
  EXPECT_NE(misfit_of_classes("confusion_matrix", 50257), "");
  EXPECT_EQ(misfit_of_classes("f1_macro", 50257), "");
  EXPECT_EQ(misfit_of_classes("top3", 3), "");
}

TEST(MetricNames, say_which_way_is_better) {
  EXPECT_EQ(lower_is_better("loss"), true);
  EXPECT_EQ(lower_is_better("perplexity"), true);
  EXPECT_EQ(lower_is_better("mae"), true);
  EXPECT_EQ(lower_is_better("r2"), false);
  EXPECT_EQ(lower_is_better("psnr"), false);
  EXPECT_EQ(lower_is_better("ssim"), false);
  EXPECT_EQ(lower_is_better("top5"), false);
  EXPECT_EQ(lower_is_better("confusion_matrix"), std::nullopt);
  EXPECT_EQ(lower_is_better("charm"), std::nullopt);
}

}  // namespace
}  // namespace tanren
