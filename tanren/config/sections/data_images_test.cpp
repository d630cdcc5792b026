#include "tanren/config/config_test_util.h"
#include "tanren/config/identity.h"
#include "tanren/config/write_config.h"

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::parse;

constexpr const char* kPictures = R"([run]
epochs = 1
[model]
kind = "convnet"
[data.train]
kind = "images"
path = "train"
[data.eval]
kind = "images"
path = "held"
)";

TEST(ValidateImages, refuses_options_that_no_image_can_follow) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"data.train.path="}, "data.train.path is missing; name the folder of class folders"},
      {{"data.train.size=[]"}, "data.train.size has 0 numbers"},
      {{"data.train.size=[1, 2, 3]"}, "data.train.size has 3 numbers"},
      {{"data.train.size=[0]"}, "data.train.size is 0; it must be at least 1"},
      {{"data.train.size=[100000]"}, "data.train.size is 1e+10 pixels an image"},
      {{"data.train.resize=100"}, "data.train.resize is 100, too small for a crop of 224"},
      {{"data.train.resize=-1"}, "data.train.resize is -1"},
      {{"data.train.crop=left"}, "one of center, none, random, shift"},
      {{"data.train.crop=random", "data.train.resize=256"},
       "data.train.resize has no meaning for data.train.crop \"random\""},
      {{"data.train.crop_scale=[0.5, 1]"}, "data.train.crop_scale has no meaning"},
      {{"data.train.pad=4"}, "data.train.pad has no meaning for data.train.crop \"center\""},
      {{"data.train.crop=shift", "data.train.pad=224"}, "data.train.pad is 224"},
      {{"data.train.crop=random", "data.train.crop_scale=[0, 1]"}, "data.train.crop_scale must be"},
      {{"data.train.crop=random", "data.train.crop_scale=[0.9, 0.5]"},
       "data.train.crop_scale must be [smallest, largest], above 0 and at most 1"},
      {{"data.train.crop=random", "data.train.crop_ratio=[1]"}, "data.train.crop_ratio must be"},
      {{"data.train.flip=1.5"}, "data.train.flip is 1.5; it must lie in [0, 1]"},
      {{"data.train.color=[0.4]"}, "data.train.color has 1 numbers; give [brightness"},
      {{"data.train.color=[-1, 0, 0, 0]"}, "data.train.color is -1; it must be 0 or more"},
      {{"data.train.color=[0, 0, 0, 0.6]"}, "data.train.color has hue 0.6; at most 0.5"},
      {{"data.train.channels=4", "data.eval.channels=4"}, "data.train.channels is 4"},
      {{"data.train.color=[0, 0, 0.1, 0]", "data.train.channels=1", "data.eval.channels=1"},
       "which grey images lack"},
      {{"data.train.mean=[0.5]", "data.eval.mean=[0.5]"}, "data.train.mean has 1 numbers for 3"},
      {{"data.train.std=[1, 0, 1]", "data.eval.std=[1, 0, 1]"}, "data.train.std is 0"},
      {{"data.train.max_pixels=0"}, "data.train.max_pixels is 0"},
      {{"data.train.broken=ignore"}, "data.train.broken \"ignore\" is unknown; one of error, skip"},
      {{"data.train.classes=3"},
       "data.train.classes has no meaning for data.train.kind \"images\""},
      {{"data.train.shape=[3]"}, "data.train.shape has no meaning"},
  };
  for (const auto& [sets, part] : cases) expect_contains(error_of(kPictures, sets), part);
  EXPECT_EQ(parse(kPictures).data.train.size, (std::vector<int64_t>{224}));
}

TEST(ValidateImages, refuses_to_change_images_in_evaluation_or_to_see_them_in_another_light) {
  expect_contains(error_of(kPictures, {"data.eval.crop=random"}), "one of center, none");
  expect_contains(error_of(kPictures, {"data.eval.flip=0.5"}), "evaluation changes no image");
  expect_contains(error_of(kPictures, {"data.eval.color=[1, 0, 0, 0]"}), "drop them");
  expect_contains(error_of(kPictures, {"data.train.mean=[0.5, 0.5, 0.5]"}),
                  "data.eval.mean differs from data.train.mean");
  expect_contains(error_of(kPictures, {"data.eval.channels=1"}), "data.eval.channels differs");
  expect_contains(error_of(kPictures, {"data.eval.std=[2, 2, 2]"}), "data.eval.std differs");
}

TEST(ValidateImages, every_key_of_images_is_written_and_read_back) {
  const std::vector<std::string> both = {"size=[48, 64]", "channels=1",      "mean=[0.25]",
                                         "std=[0.125]",   "max_pixels=1000", "broken=skip"};
  const std::vector<std::string> training = {"crop=random", "crop_scale=[0.25, 0.5]",
                                             "crop_ratio=[0.5, 2]", "flip=0.5",
                                             "color=[0.1, 0.2, 0, 0]"};
  std::vector<std::string> sets;
  for (const auto& set : both) {
    sets.push_back("data.train." + set);
    sets.push_back("data.eval." + set);
  }
  for (const auto& set : training) sets.push_back("data.train." + set);
  sets.emplace_back("data.eval.resize=80");
  for (const char* shift : {"", "data.train.crop=shift"}) {
    if (*shift != 0) {
      sets.resize(sets.size() - 6);
      sets.insert(sets.end(), {shift, "data.train.pad=4"});
    }
    const auto config = parse(kPictures, sets);
    const auto text = to_toml(config);
    auto back = parse(text);
    back.asked = config.asked;
    EXPECT_EQ(to_toml(back), text);
    EXPECT_EQ(differing_keys(config, back), std::vector<std::string>());
  }
}

TEST(ValidateImages, refuses_the_keys_of_images_for_other_kinds_of_data) {
  for (const char* set :
       {"data.train.size=[32]", "data.train.flip=0.5", "data.train.broken=skip"}) {
    expect_contains(error_of(config_test::kGood, {set}),
                    "has no meaning for data.train.kind \"csv\"; drop it");
  }
}

TEST(ValidateImages, knows_the_words_that_people_bring) {
  expect_contains(error_of(kPictures, {"data.train.kind=ImageFolder"}), "images");
  expect_contains(error_of(kPictures, {"data.train.color_jitter=0.4"}), "data.train.color");
}

constexpr const char* kPairs = R"([run]
epochs = 1
[model]
kind = "mlp"
loss = "l1"
[data.train]
kind = "pairs"
path = "train"
[data.eval]
kind = "pairs"
path = "held"
)";

TEST(ValidatePairs, refuses_options_that_no_pair_can_follow) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"data.train.path="}, "data.train.path is missing; name the folder of inputs/ and targets/"},
      {{"data.train.path=", "data.train.side_by_side=true"}, "name the folder of pictures"},
      {{"data.train.size=[0]"}, "data.train.size is 0; it must be at least 1"},
      {{"data.train.crop=left"}, "one of center, none, random, shift"},
      {{"data.train.pad=4"}, "data.train.pad has no meaning for data.train.crop \"center\""},
      {{"data.train.filter=lanczos"},
       "data.train.filter \"lanczos\" is unknown; one of bilinear, bicubic, nearest"},
      {{"data.train.target_filter=area"}, "data.train.target_filter \"area\" is unknown"},
      {{"data.train.target_channels=2"}, "data.train.target_channels is 2"},
      {{"data.train.color=[0.4, 0, 0, 0]"}, "data.train.color has no meaning for data.train.kind"},
      {{"data.train.mean=[0, 0, 0]"}, "data.train.mean has no meaning for data.train.kind"},
      {{"data.train.std=[1, 1, 1]"}, "data.train.std has no meaning for data.train.kind"},
      {{"data.train.classes=3"}, "data.train.classes has no meaning for data.train.kind \"pairs\""},
      {{"data.train.label=a"}, "data.train.label has no meaning"},
      {{"data.train.only_classes=[a, b]"}, "data.train.only_classes has no meaning"},
      {{"data.eval.flip=0.5"}, "data.eval.flip is for training; evaluation changes no image: drop"},
      {{"data.eval.crop=shift"}, "one of center, none"},
      {{"data.train.channels=1"}, "data.eval.channels differs from data.train.channels"},
      {{"data.eval.target_channels=1"}, "data.eval.target_channels differs"},
      {{"data.eval.swap=true"}, "data.eval.swap differs from data.train.swap"},
  };
  for (const auto& [sets, part] : cases) expect_contains(error_of(kPairs, sets), part);
  EXPECT_EQ(parse(kPairs).data.train.filter, "bilinear");
}

TEST(ValidatePairs, every_key_of_pairs_is_written_and_read_back) {
  const auto config = parse(
      kPairs, {"data.train.side_by_side=true", "data.train.swap=true", "data.eval.swap=true",
               "data.train.filter=bicubic", "data.train.target_filter=nearest",
               "data.train.crop=shift", "data.train.target_channels=1",
               "data.eval.target_channels=1", "data.train.pad=4", "data.train.size=[48, 64]"});
  const auto text = to_toml(config);
  auto back = parse(text);
  back.asked = config.asked;
  EXPECT_EQ(to_toml(back), text);
  EXPECT_EQ(differing_keys(config, back), std::vector<std::string>());
  EXPECT_EQ(back.data.train.target_filter, "nearest");
}

TEST(ValidatePairs, refuses_the_keys_of_pairs_for_other_kinds_of_data) {
  for (const char* set : {"data.train.side_by_side=true", "data.train.swap=true",
                          "data.train.filter=bicubic", "data.train.target_filter=nearest"}) {
    expect_contains(error_of(kPictures, {set}), "has no meaning for data.train.kind \"images\"");
  }
  expect_contains(error_of(config_test::kGood, {"data.train.swap=true"}),
                  "has no meaning for data.train.kind \"csv\"; drop it");
}

}  // namespace
}  // namespace tanren
