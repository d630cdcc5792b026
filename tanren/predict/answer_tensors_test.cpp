#include "tanren/predict/answer_tensors.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace tanren {
namespace {

TEST(AnswerTensorsTest, refuse_answers_of_tokens) {
  EXPECT_THROW(AnswerTensors({AnswerKind::tokens}, {}, false), ConfigError);
}

TEST(AnswerTensorsTest, refuse_records_of_another_size) {
  const testing::TemporaryFolder folder;
  const AnswerTensors tensors({AnswerKind::values, false, 2}, {}, false);
  TANREN_EXPECT_CONTAINS(testing::error_of<RunError>([&] {
                           tensors.write(folder.file("part", std::string(12, 'x')),
                                         folder.path() / "out.safetensors");
                         }),
                         "has 12 bytes, which are no whole answers of 8");
}

TEST(AnswerTensorsTest, have_a_row_for_each_sample_also_for_a_broken_one) {
  const testing::TemporaryFolder folder;
  DataInfo info;
  info.class_names = {"cat", "dog"};
  const Answer dog{.label = 1, .score = 0.75F, .scores = {0.25F, 0.75F}};
  for (const bool all : {false, true}) {
    const AnswerTensors tensors({AnswerKind::classes, false, 2}, info, all);
    std::string bytes;
    tensors.add(bytes, &dog);
    tensors.add(bytes, nullptr);
    tensors.write(folder.file("part", bytes), folder.path() / "out.safetensors");
    const auto read = read_safetensors(folder.path() / "out.safetensors");
    EXPECT_TRUE(at::equal(read.tensors.at("label"), at::tensor({1, -1}, at::kLong)));
    EXPECT_EQ(read.tensors.at("score")[0].item<float>(), 0.75F);
    EXPECT_TRUE(read.tensors.at("score")[1].isnan().item<bool>());
    EXPECT_EQ(read.metadata.at("class_names"), "[\"cat\",\"dog\"]");
    ASSERT_EQ(read.tensors.contains("scores"), all);
    if (!all) continue;
    EXPECT_EQ(read.tensors.at("scores").sizes(), at::IntArrayRef({2, 2}));
    EXPECT_EQ(read.tensors.at("scores")[0][1].item<float>(), 0.75F);
  }
}

TEST(AnswerTensorsTest, of_values_have_them_in_rows) {
  const testing::TemporaryFolder folder;
  const AnswerTensors tensors({AnswerKind::values, false, 2}, {}, false);
  const Answer two{.scores = {1.5F, -2}}, other{.scores = {3, 4}};
  std::string bytes;
  tensors.add(bytes, &two);
  tensors.add(bytes, &other);
  tensors.write(folder.file("part", bytes), folder.path() / "out.safetensors");
  const auto read = read_safetensors(folder.path() / "out.safetensors");
  EXPECT_TRUE(at::equal(read.tensors.at("values"),
                        at::tensor(std::vector<float>{1.5F, -2, 3, 4}).view({2, 2})));
  EXPECT_EQ(read.tensors.size(), 1u);
}

}  // namespace
}  // namespace tanren
