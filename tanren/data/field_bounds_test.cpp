#include "tanren/data/field_bounds.h"

#include <ATen/ATen.h>

#include <gtest/gtest.h>

namespace tanren {
namespace {

Batch token_batch() {
  Batch batch;
  batch.fields.set("inputs", at::arange(12).view({3, 4}));
  batch.fields.set("labels", at::full({3, 4}, -100, at::kLong));
  batch.ids = at::tensor({40, 7, 31}, at::kLong);
  return batch;
}

TEST(FieldBounds, an_id_beyond_the_vocabulary_is_named_with_its_place) {
  Batch batch = token_batch();
  batch.fields.at("inputs")[1][2] = 50;
  const auto bad = find_bad_value(batch, {{"inputs", 50}});
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->field, "inputs");
  EXPECT_EQ(bad->sample, 7);
  EXPECT_EQ(bad->row, 1);
  EXPECT_EQ(bad->position, 2);
  EXPECT_EQ(bad->value, 50);
  EXPECT_EQ(bad->text(),
            "inputs holds 50 in sample 7 at position 2 (row 1 of the batch), outside [0, 50)");
}

TEST(FieldBounds, a_label_may_be_missing_but_an_id_may_not) {
  Batch batch = token_batch();
  EXPECT_FALSE(find_bad_value(batch, {{"inputs", 12}, {"labels", 12}}));
  batch.fields.at("inputs")[2][0] = -100;
  ASSERT_TRUE(find_bad_value(batch, {{"inputs", 12}, {"labels", 12}}));
  batch = token_batch();
  batch.fields.at("labels")[0][3] = -1;
  EXPECT_EQ(find_bad_value(batch, {{"labels", 12}})->value, -1);
}

TEST(FieldBounds, a_class_is_one_number_a_sample_of_any_whole_type) {
  Batch batch;
  batch.fields.set("labels", at::tensor({0, 4, 5}, at::kByte));
  batch.ids = at::tensor({3, 9, 12}, at::kLong);
  const auto bad = find_bad_value(batch, {{"labels", 5}});
  ASSERT_TRUE(bad);
  EXPECT_EQ(bad->text(), "labels holds 5 in sample 12 (row 2 of the batch), outside [0, 5)");
}

TEST(FieldBounds, values_and_fields_without_a_bound_are_passed_over) {
  Batch batch;
  batch.fields.set("labels", at::full({2}, 9.0));
  batch.fields.set("mask", at::full({2}, 9, at::kLong));
  batch.fields.set("inputs", at::empty({0, 4}, at::kLong));
  EXPECT_FALSE(find_bad_value(batch, {{"labels", 5}, {"inputs", 3}, {"absent", 1}}));
  EXPECT_EQ(ranges_text(batch), "mask 9 to 9");
}

TEST(FieldBounds, come_from_the_data_and_from_what_the_model_scores) {
  DataInfo info;
  info.outputs = 4;
  EXPECT_EQ(field_bounds(info, 0), (FieldBounds{{"labels", 4}}));
  EXPECT_EQ(field_bounds(info, 6), (FieldBounds{{"labels", 6}}));
  info.vocab_size = 50;
  info.token_types = 2;
  EXPECT_EQ(field_bounds(info, 6),
            (FieldBounds{{"inputs", 50}, {"labels", 6}, {"token_types", 2}}));
  EXPECT_EQ(field_bounds(info, 64).at("inputs"), 64);
  info.class_labels = false;
  EXPECT_EQ(field_bounds(info, 0).count("labels"), 0u);
}

}  // namespace
}  // namespace tanren
