#include "tanren/data/dataset.h"

#include "tanren/base/error.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/data/eval_pass.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/data/loader.h"

#include <set>

#include <ATen/ATen.h>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

// Class folders "cat" and "dog" with six images each, all of different sizes.
class Images : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 6; ++i) {
      add("cat/" + std::to_string(i) + ".jpg", testing::make_jpeg(60 + 9 * i, 50 + 4 * i));
      add("dog/" + std::to_string(i) + ".JPEG", testing::make_jpeg(90 - 5 * i, 40 + 7 * i));
    }
    before_ = set_log_sink([this](std::string_view line) { log_ += std::string(line) + "\n"; });
  }
  void TearDown() override { set_log_sink(before_); }

  void add(const std::string& name, std::string_view bytes) const {
    fs::create_directories((folder_.path() / name).parent_path());
    folder_.file(name, bytes);
  }
  SourceOptions options() const {
    SourceOptions options;
    options.kind = "images";
    options.path = folder_.path().string();
    options.size = {24};
    return options;
  }
  SourceOptions augmented() const {
    auto all = options();
    all.crop = "random";
    all.flip = 0.5;
    all.color = {0.4, 0.4, 0.4, 0.1};
    return all;
  }
  static std::unique_ptr<Dataset> open(const SourceOptions& options) {
    return open_dataset(options, "data.train");
  }
  std::string refusal(const SourceOptions& options) const {
    return error_of<DataError>([&] { open(options); });
  }
  // A JPEG with a sound header and end mark, but damaged in between.
  static std::string rotten() {
    std::string bytes = testing::make_jpeg(64, 64);
    std::fill(bytes.begin() + static_cast<int64_t>(bytes.size()) / 3, bytes.end() - 2, '\xFF');
    bytes[bytes.size() - 3] = '\x00';
    return bytes;
  }

  testing::TemporaryFolder folder_;
  std::string log_;
  LogSink before_;
};

TEST_F(Images, folders_that_are_no_classes_of_images_are_refused_in_one_line) {
  auto asked = options();
  asked.path = (folder_.path() / "absent").string();
  TANREN_EXPECT_CONTAINS(refusal(asked), "absent is no folder; name the one that holds");
  asked.path = (folder_.path() / "cat").string();
  TANREN_EXPECT_CONTAINS(refusal(asked), "holds 6 images but no class folders; put the images");
  fs::create_directories(folder_.path() / "new/one");
  asked.path = (folder_.path() / "new").string();
  TANREN_EXPECT_CONTAINS(refusal(asked), "1 class folders but no image in them");
  add("new/one/a.jpg", testing::make_jpeg(20, 20));
  TANREN_EXPECT_CONTAINS(refusal(asked), "one class only (one); a classifier needs two");
  add("new/two/readme.txt", "no image");
  TANREN_EXPECT_CONTAINS(refusal(asked), "no usable image in the class folders two");
}

TEST_F(Images, broken_files_are_an_error_that_names_them) {
  add("cat/9.jpg", "");
  add("dog/a text.jpg", "no image at all");
  add("dog/old.bmp", "BM");
  add("dog/cut.jpg", testing::make_jpeg(50, 50).substr(0, 900));
  fs::create_symlink("nowhere.jpg", folder_.path() / "dog/gone.jpg");
  const auto line = refusal(options());
  TANREN_EXPECT_CONTAINS(line, "5 of 17 files cannot be used: cat/9.jpg is empty, dog/a text.jpg");
  TANREN_EXPECT_CONTAINS(line, "dog/a text.jpg is neither JPEG nor PNG");
  TANREN_EXPECT_CONTAINS(line, "dog/cut.jpg is cut off: its end mark is missing");
  TANREN_EXPECT_CONTAINS(line, "dog/gone.jpg cannot be read: No such file or directory");
  TANREN_EXPECT_CONTAINS(line, "set data.train.broken = \"skip\"");
}

TEST_F(Images, skipped_files_are_counted_and_named_once_and_leave_the_others_as_they_are) {
  const auto all = open(options())->collate({0, 1, 2, 3, 4, 5, 6});
  for (int i = 0; i < 7; ++i) add("cat/0-" + std::to_string(i) + ".jpg", "");
  auto asked = options();
  asked.broken = "skip";
  const auto data = open(asked);
  EXPECT_EQ(data->size(), 12);
  TANREN_EXPECT_CONTAINS(log_, "skipped 7 of 19 files");
  TANREN_EXPECT_CONTAINS(log_, "cat/0-0.jpg is empty, cat/0-1.jpg");
  TANREN_EXPECT_CONTAINS(log_, "and 2 more");
  EXPECT_TRUE(at::equal(data->collate({0, 1, 2, 3, 4, 5, 6}).batch["inputs"], all.batch["inputs"]));
}

TEST_F(Images, too_many_pixels_are_a_broken_file) {
  auto asked = options();
  asked.max_pixels = 80 * 60;
  TANREN_EXPECT_CONTAINS(refusal(asked), "more than max_pixels = 4800");
}

TEST_F(Images, names_say_nothing_of_the_format_and_hidden_files_are_passed_over) {
  const testing::ImageFixtures images;
  add("cat/png.jpg", images.bytes("png_rgb"));
  add("dog/jpeg.png", images.bytes("jpeg_420"));
  add("dog/.hidden.jpg", "no image");
  add(".git/a.jpg", "no image");
  add("dog/deeper/still.png", images.bytes("png_palette"));
  const auto data = open(options());
  EXPECT_EQ(data->size(), 15);
  EXPECT_EQ(data->info().class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(data->info().outputs, 2);
  EXPECT_EQ(data->info().input_shape, (std::vector<int64_t>{3, 24, 24}));
  const auto batch = data->collate({0, 6, 14}).batch;
  EXPECT_TRUE(at::equal(batch["labels"], at::tensor({0, 0, 1}, at::kLong)));
}

TEST_F(Images, an_evaluation_folder_takes_the_labels_of_training_and_no_other_classes) {
  const auto info = open(options())->info();
  fs::create_directories(folder_.path() / "held/dog");
  fs::copy_file(folder_.path() / "cat/1.jpg", folder_.path() / "held/dog/1.jpg");
  auto asked = options();
  asked.path = (folder_.path() / "held").string();
  const auto held = open_dataset(asked, "data.eval", &info);
  EXPECT_EQ(held->collate({0}).batch["labels"].item<int64_t>(), 1);
  EXPECT_EQ(held->info().outputs, 2);
  fs::create_directories(folder_.path() / "held/eel");
  fs::create_directories(folder_.path() / "held/bat");
  TANREN_EXPECT_CONTAINS(
      error_of<DataError>([&] { open_dataset(asked, "data.eval", &info); }),
      "has classes that the training data lacks: bat, eel; training knows cat, dog");
}

TEST_F(Images, a_file_that_breaks_only_in_decoding_is_an_error_that_names_it) {
  add("cat/3.jpg", rotten());
  const auto data = open(options());
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { data->collate({2, 3}); }), "/cat/3.jpg JPEG: ");
}

TEST_F(Images, or_is_left_out_of_evaluation_and_stood_in_for_by_the_next_in_training) {
  add("cat/3.jpg", rotten());
  auto asked = options();
  asked.broken = "skip";
  const auto data = open(asked);
  EXPECT_EQ(data->size(), 12);
  EXPECT_EQ(data->remarks(), "");

  const auto held = data->collate({2, 3, 4});
  EXPECT_EQ(held.counts.at("samples"), 2);
  EXPECT_TRUE(at::equal(held.batch.ids, at::tensor({2, 4}, at::kLong)));
  EXPECT_TRUE(at::equal(held.batch["inputs"], data->collate({2, 4}).batch["inputs"]));

  const auto trained = data->collate_training({2, 3, 4}, {1, 0});
  EXPECT_EQ(trained.counts.at("samples"), 3);
  EXPECT_TRUE(at::equal(trained.batch["inputs"][1], trained.batch["inputs"][2]));
  TANREN_EXPECT_CONTAINS(log_, "cat/3.jpg JPEG: ");
  EXPECT_EQ(data->remarks(), "[data.train] 1 of 12 files could not be decoded: cat/3.jpg");

  EvalPass pass(*data, 1);
  int64_t samples = 0;
  while (const auto batch = pass.next()) {
    EXPECT_EQ(batch->batch.size(), 1) << "a batch that lost all its samples is none";
    samples += batch->batch.size();
  }
  EXPECT_EQ(samples, 11);
}

TEST_F(Images, without_any_file_that_decodes_training_ends) {
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
    if (entry.is_regular_file()) std::ofstream(entry.path(), std::ios::binary) << rotten();
  }
  auto asked = options();
  asked.broken = "skip";
  const auto data = open(asked);
  EXPECT_EQ(data->collate({0, 1}).batch.size(), 0);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { data->collate_training({0}, {}); }),
                         "none of the 12 files");
}

// All inputs of the first batches that a loader gives, in order.
at::Tensor inputs_of(const Dataset& data, LoaderOptions options, Cursor start, int64_t samples) {
  options.seed = 5;
  options.patience_seconds = 0;
  Loader loader(data, options, start);
  std::vector<at::Tensor> parts;
  for (int64_t seen = 0; seen < samples; seen += parts.back().size(0)) {
    parts.push_back(loader.next().local["inputs"]);
  }
  return at::cat(parts);
}

TEST_F(Images, augmented_pixels_are_the_same_for_any_workers_prefetch_and_split) {
  const auto data = open(augmented());
  const auto whole = inputs_of(*data, {.global_batch = 12, .workers = 0}, {}, 24);
  for (const int64_t workers : {1, 3}) {
    for (const int64_t prefetch : {1, 4}) {
      for (const int64_t batch : {3, 4, 12}) {
        const LoaderOptions options{
            .global_batch = batch, .workers = workers, .prefetch = prefetch};
        EXPECT_TRUE(at::equal(inputs_of(*data, options, {}, 24), whole)) << workers << ' ' << batch;
      }
    }
  }
  const auto later =
      inputs_of(*data, {.global_batch = 4, .workers = 2}, {.epoch = 1, .consumed = 4}, 8);
  EXPECT_TRUE(at::equal(later, whole.slice(0, 16))) << "gone on from the middle of an epoch";
}

TEST_F(Images, augmentation_differs_by_epoch_and_seed_and_never_touches_evaluation) {
  const auto data = open(augmented());
  const auto of = [&](uint64_t seed, int64_t epoch) {
    return data->collate_training({0, 5}, {seed, epoch}).batch["inputs"];
  };
  EXPECT_TRUE(at::equal(of(1, 0), of(1, 0)));
  EXPECT_FALSE(at::equal(of(1, 0), of(1, 1)));
  EXPECT_FALSE(at::equal(of(1, 0), of(2, 0)));
  const auto plain = open(options())->collate({0, 5}).batch["inputs"];
  EXPECT_TRUE(at::equal(data->collate({0, 5}).batch["inputs"], plain));
}

TEST_F(Images, pixels_lie_in_zero_to_one_unless_normalised) {
  auto asked = options();
  const auto plain = open(asked)->collate({0, 7}).batch["inputs"];
  EXPECT_GE(plain.min().item<float>(), 0);
  EXPECT_LE(plain.max().item<float>(), 1.00001F);
  EXPECT_GT(plain.max().item<float>(), 0.5F);
  asked.mean = {0.4, 0.5, 0.6};
  asked.std = {0.2, 0.3, 0.1};
  const auto shape = std::vector<int64_t>{1, 3, 1, 1};
  const auto mean = at::tensor({0.4F, 0.5F, 0.6F}).view(shape);
  const auto deviation = at::tensor({0.2F, 0.3F, 0.1F}).view(shape);
  const auto normalised = open(asked)->collate({0, 7}).batch["inputs"];
  EXPECT_TRUE(at::allclose(normalised, (plain - mean) / deviation, 1e-5, 1e-5));
  asked = options();
  asked.channels = 1;
  EXPECT_EQ(open(asked)->collate({0, 7}).batch["inputs"].sizes(),
            (std::vector<int64_t>{2, 1, 24, 24}));
}

}  // namespace
}  // namespace tanren
