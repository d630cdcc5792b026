#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"
#include "tanren/data/eval_pass.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/data/loader.h"

#include <ATen/ATen.h>

#include <sys/stat.h>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

// Pictures of different sizes in inputs/, each with its own copy in targets/.
class PairedPictures : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 8; ++i) {
      const auto name = std::to_string(i);
      const auto picture = testing::make_jpeg(60 + 9 * i, 50 + 4 * i);
      add("inputs/" + name + ".jpg", picture);
      add("targets/" + name + ".jpeg", picture);
    }
    before_ = set_log_sink([this](std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  void TearDown() override { set_log_sink(before_); }

  void add(const std::string& name, std::string_view bytes) const {
    fs::create_directories((folder_.path() / name).parent_path());
    folder_.file(name, bytes);
  }
  void remove(const std::string& name) const { fs::remove_all(folder_.path() / name); }
  SourceOptions options(const std::string& below = "") const {
    SourceOptions options;
    options.kind = "pairs";
    options.path = (folder_.path() / below).string();
    options.size = {24, 32};
    return options;
  }
  SourceOptions halves() const {
    auto asked = options("halves");
    asked.side_by_side = true;
    return asked;
  }
  static std::unique_ptr<Dataset> open(const SourceOptions& options) {
    return open_dataset(options, "data.train");
  }
  static std::string refusal(const SourceOptions& options) {
    return error_of<DataError>([&] { open(options); });
  }
  // A JPEG with a sound header and end mark, but damaged in between.
  static std::string rotten(int width, int height) {
    std::string bytes = testing::make_jpeg(width, height);
    std::fill(bytes.begin() + static_cast<int64_t>(bytes.size()) / 3, bytes.end() - 2, '\xFF');
    bytes[bytes.size() - 3] = '\x00';
    return bytes;
  }

  testing::TemporaryFolder folder_;
  std::string log_;
  LogSink before_;
};

std::vector<int64_t> every_index(const Dataset& data) {
  std::vector<int64_t> indices(static_cast<size_t>(data.size()));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
  return indices;
}

TEST_F(PairedPictures, missing_folders_and_empty_ones_are_refused_in_one_line) {
  TANREN_EXPECT_CONTAINS(refusal(options("absent")),
                         "absent is no folder; name the one that holds");
  TANREN_EXPECT_CONTAINS(refusal(options("inputs")), "inputs has no folder inputs/; put the");
  remove("targets");
  TANREN_EXPECT_CONTAINS(refusal(options()), "has no folder targets/; put the pictures into");
  fs::create_directories(folder_.path() / "targets");
  TANREN_EXPECT_CONTAINS(refusal(options()), "targets holds no pictures; JPEG and PNG are read");
  fs::create_directories(folder_.path() / "halves");
  TANREN_EXPECT_CONTAINS(refusal(halves()), "halves holds no pictures; JPEG and PNG are read");
}

TEST_F(PairedPictures, a_link_that_leads_up_and_a_pipe_end_no_start) {
  fs::create_directory_symlink("..", folder_.path() / "inputs/up");
  fs::create_directory_symlink(".", folder_.path() / "inputs/here");
  const auto data = open(options());
  EXPECT_LT(data->size(), 30);
  ASSERT_EQ(::mkfifo((folder_.path() / "inputs/pipe.png").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((folder_.path() / "targets/pipe.png").c_str(), 0600), 0);
  TANREN_EXPECT_CONTAINS(refusal(options()), "pipe.png is no regular file");
}

TEST_F(PairedPictures, pictures_without_a_partner_are_refused_by_name) {
  remove("targets/3.jpeg");
  remove("inputs/5.jpg");
  remove("inputs/6.jpg");
  const auto line = refusal(options());
  TANREN_EXPECT_CONTAINS(line, "has 6 inputs and 7 targets; without a partner of the same name");
  TANREN_EXPECT_CONTAINS(line, "name: inputs/3.jpg, targets/5.jpeg, targets/6.jpeg; add the");
  add("inputs/4.png", testing::make_jpeg(96, 66));
  TANREN_EXPECT_CONTAINS(refusal(options()),
                         "inputs/4.jpg and inputs/4.png have the same name; rename or remove one");
}

TEST_F(PairedPictures, pictures_of_two_sizes_are_no_pair) {
  add("targets/2.jpeg", testing::make_jpeg(78, 57));
  auto asked = options();
  const std::string part = "1 of 8 pairs do not fit: targets/2.jpeg is 78 × 57, its input 78 × 58";
  TANREN_EXPECT_CONTAINS(refusal(asked), part);
  asked.broken = "skip";
  TANREN_EXPECT_CONTAINS(refusal(asked), part);
}

TEST_F(PairedPictures, files_that_cannot_be_used_are_an_error_that_names_them) {
  const testing::ImageFixtures images;
  add("inputs/1.jpg", "");
  add("targets/2.jpeg", testing::make_jpeg(78, 58).substr(0, 900));
  add("targets/3.jpeg", images.bytes("jpeg_cmyk"));
  add("inputs/4.jpg", "GIF89a");
  const auto line = refusal(options());
  TANREN_EXPECT_CONTAINS(line, "4 of 8 pairs cannot be used: inputs/1.jpg is empty, ");
  TANREN_EXPECT_CONTAINS(line, "targets/2.jpeg is cut off: its end mark is missing");
  TANREN_EXPECT_CONTAINS(line, "targets/3.jpeg is a CMYK JPEG, whose colours depend on its inks");
  TANREN_EXPECT_CONTAINS(line, "inputs/4.jpg is neither JPEG nor PNG");
  TANREN_EXPECT_CONTAINS(line, "set data.train.broken = \"skip\"");
  auto asked = options();
  asked.broken = "skip";
  EXPECT_EQ(open(asked)->size(), 4);
  TANREN_EXPECT_CONTAINS(log_, "skipped 4 of 8 pairs");
}

TEST_F(PairedPictures, a_file_of_an_odd_width_has_no_halves) {
  add("halves/1.jpg", testing::make_jpeg(81, 40));
  add("halves/2.jpg", testing::make_jpeg(80, 40));
  TANREN_EXPECT_CONTAINS(refusal(halves()),
                         "1 of 2 pairs do not fit: 1.jpg is 81 × 40, and an odd "
                         "width has no halves; the left half");
}

TEST_F(PairedPictures, the_model_is_told_both_shapes) {
  auto asked = options();
  asked.channels = 1;
  asked.target_channels = 3;
  const auto data = open(asked);
  const auto info = data->info();
  EXPECT_EQ(info.input_shape, (std::vector<int64_t>{1, 24, 32}));
  EXPECT_EQ(info.target_shape, (std::vector<int64_t>{3, 24, 32}));
  EXPECT_EQ(info.outputs, 3 * 24 * 32);
  EXPECT_FALSE(info.class_labels);
  const auto batch = data->collate({0, 5}).batch;
  EXPECT_EQ(batch["inputs"].sizes(), (std::vector<int64_t>{2, 1, 24, 32}));
  EXPECT_EQ(batch["labels"].sizes(), (std::vector<int64_t>{2, 3, 24, 32}));
  EXPECT_EQ(data->sample_name(5), "5");
  EXPECT_GE(batch["labels"].min().item<float>(), -1);
  EXPECT_LE(batch["labels"].max().item<float>(), 1.00001F);
  EXPECT_LT(batch["labels"].min().item<float>(), -0.5F);
}

TEST_F(PairedPictures, a_picture_and_its_copy_stay_equal_under_every_augmentation) {
  for (const char* crop : {"center", "none", "random", "shift"}) {
    for (const char* filter : {"bilinear", "bicubic", "nearest"}) {
      auto asked = options();
      asked.crop = crop;
      asked.filter = filter;
      asked.flip = 0.5;
      asked.pad = asked.crop == "shift" ? 5 : 0;
      const auto data = open(asked);
      at::Tensor first;
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        const auto batch = data->collate_training(every_index(*data), {3, epoch}).batch;
        EXPECT_TRUE(at::equal(batch["inputs"], batch["labels"])) << crop << ' ' << filter;
        if (!first.defined()) first = batch["inputs"];
        EXPECT_EQ(epoch == 0, at::equal(batch["inputs"], first)) << crop;
      }
      const auto held = data->collate(every_index(*data)).batch;
      EXPECT_TRUE(at::equal(held["inputs"], held["labels"]));
    }
  }
}

TEST_F(PairedPictures, pixels_lie_within_one_level_of_PIL_by_every_filter) {
  const auto fixture =
      read_safetensors(fs::path(TANREN_SOURCE_DIR) / "tests/fixtures/pairs.safetensors");
  const auto& file = fixture.tensors.at("picture.file");
  const std::string bytes(static_cast<const char*>(file.const_data_ptr()),
                          static_cast<size_t>(file.numel()));
  add("one/inputs/1.png", bytes);
  add("one/targets/1.png", bytes);
  int seen = 0;
  for (const auto& [name, expected] : fixture.tensors) {
    if (name == "picture.file") continue;
    auto asked = options("one");
    asked.crop = "none";
    asked.size = {expected.size(1), expected.size(2)};
    const std::string filter = name.substr(0, name.find('.'));
    asked.filter = "nearest";
    asked.target_filter = filter;
    const auto pixels = open(asked)->collate({0}).batch["labels"][0] * 127.5 + 127.5;
    const double most = (pixels - expected).abs().max().item<double>();
    EXPECT_LE(most, filter == "nearest" ? 1e-4 : 1.001) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 15);
}

TEST_F(PairedPictures, the_left_half_is_the_input_and_swap_exchanges_them) {
  add("halves/a.jpg", testing::make_jpeg(128, 48));
  auto asked = halves();
  asked.crop = "none";
  asked.size = {48, 64};
  const auto data = open(asked);
  const auto batch = data->collate({0}).batch;
  SourceOptions whole = options();
  whole.kind = "images";
  whole.size = {48, 128};
  whole.crop = "none";
  const auto file = open_image_files(whole, "data.eval", {folder_.path() / "halves/a.jpg"});
  const auto both = file->collate({0}).batch["inputs"] * 2 - 1;
  EXPECT_TRUE(at::allclose(batch["inputs"], both.narrow(3, 0, 64), 0, 1e-5));
  EXPECT_TRUE(at::allclose(batch["labels"], both.narrow(3, 64, 64), 0, 1e-5));
  asked.swap = true;
  const auto swapped = open(asked)->collate({0}).batch;
  EXPECT_TRUE(at::equal(swapped["inputs"], batch["labels"]));
  EXPECT_TRUE(at::equal(swapped["labels"], batch["inputs"]));
}

TEST_F(PairedPictures, no_pixel_of_the_other_half_shows_at_any_size) {
  add("halves/a.jpg", testing::make_halves(64, 40));
  for (const char* filter : {"bilinear", "bicubic", "nearest"}) {
    auto asked = halves();
    asked.filter = filter;
    asked.crop = "none";
    asked.size = {7, 9};
    const auto batch = open(asked)->collate({0}).batch;
    EXPECT_GT(batch["inputs"].min().item<float>(), 0.95F) << filter;
    EXPECT_LT(batch["labels"].max().item<float>(), -0.95F) << filter;
  }
}

TEST_F(PairedPictures, swapped_folders_exchange_inputs_and_targets) {
  add("targets/0.jpeg", testing::make_halves(60, 50));
  const auto plain = open(options())->collate({0}).batch;
  auto asked = options();
  asked.swap = true;
  const auto swapped = open(asked)->collate({0}).batch;
  EXPECT_FALSE(at::equal(plain["inputs"], plain["labels"]));
  EXPECT_TRUE(at::equal(swapped["inputs"], plain["labels"]));
  EXPECT_TRUE(at::equal(swapped["labels"], plain["inputs"]));
}

at::Tensor pictures_of(const Dataset& data, LoaderOptions options, Cursor start, int64_t samples) {
  options.seed = 5;
  options.patience_seconds = 0;
  Loader loader(data, options, start);
  std::vector<at::Tensor> parts;
  for (int64_t seen = 0; seen < samples; seen += parts.back().size(0)) {
    const Batch batch = loader.next().local;
    parts.push_back(at::cat({batch["inputs"], batch["labels"]}, 1));
  }
  return at::cat(parts);
}

TEST_F(PairedPictures, order_and_pixels_are_the_same_for_any_workers_and_after_a_resume) {
  auto asked = options();
  asked.crop = "random";
  asked.flip = 0.5;
  const auto data = open(asked);
  const auto whole = pictures_of(*data, {.global_batch = 8, .workers = 0}, {}, 16);
  for (const int64_t workers : {1, 3}) {
    for (const int64_t batch : {2, 4}) {
      const LoaderOptions options{.global_batch = batch, .workers = workers, .prefetch = 2};
      EXPECT_TRUE(at::equal(pictures_of(*data, options, {}, 16), whole)) << workers;
    }
  }
  const auto later =
      pictures_of(*data, {.global_batch = 2, .workers = 2}, {.epoch = 1, .consumed = 4}, 4);
  EXPECT_TRUE(at::equal(later, whole.slice(0, 12)));
}

TEST_F(PairedPictures,
       a_picture_that_breaks_only_in_decoding_is_named_or_left_out_with_its_partner) {
  add("targets/3.jpeg", rotten(87, 62));
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] {
                           open(options())->collate({2, 3});
                         }),
                         "/targets/3.jpeg JPEG: ");
  auto asked = options();
  asked.broken = "skip";
  const auto data = open(asked);
  const auto held = data->collate({2, 3, 4}).batch;
  EXPECT_TRUE(at::equal(held.ids, at::tensor({2, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(held["inputs"], held["labels"]));
  const auto trained = data->collate_training({2, 3, 4}, {1, 0}).batch;
  EXPECT_TRUE(at::equal(trained["inputs"], trained["labels"]));
  EXPECT_TRUE(at::equal(trained["inputs"][1], trained["inputs"][2]));
  TANREN_EXPECT_CONTAINS(data->remarks(), "1 of 8 files could not be decoded: targets/3.jpeg");
}

TEST_F(PairedPictures, the_parts_tell_other_files_apart) {
  const auto before = open(options())->parts();
  fs::rename(folder_.path() / "targets/7.jpeg", folder_.path() / "targets/7.png");
  const auto after = open(options())->parts();
  ASSERT_EQ(before.size(), after.size());
  bool differs = false;
  for (size_t i = 0; i < before.size(); ++i) differs |= before[i].hash != after[i].hash;
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace tanren
