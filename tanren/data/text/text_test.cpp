#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"
#include "tanren/data/file_list.h"
#include "tanren/data/text/token_test_util.h"

#include <filesystem>
#include <set>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::counted;
using testing::Ids;
using testing::rows_of;
using testing::TemporaryFolder;
using testing::whole_of;
using testing::windows_of;

SourceOptions text_of(const fs::path& path, int64_t context) {
  return {.kind = "text", .path = path.string(), .context = context};
}

std::string text_error(const SourceOptions& options) {
  return testing::error_of<InputError>([&] { open_dataset(options, "data.train"); });
}

Ids bytes_of(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()),
          reinterpret_cast<const unsigned char*>(text.data()) + text.size()};
}

// A tree of small files: a.txt, b.md, empty.txt, .hidden, sub/c.txt, sub/deep/d.txt, .git/config.
class TextFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_.path() / "sub" / "deep");
    fs::create_directories(folder_.path() / ".git");
    folder_.file("a.txt", "alpha");
    folder_.file("b.md", "beta");
    folder_.file("empty.txt", "");
    folder_.file(".hidden", "hidden");
    folder_.file("sub/c.txt", "gamma");
    folder_.file("sub/deep/d.txt", "delta");
    folder_.file(".git/config", "config");
  }

  std::vector<std::string> names(SourceOptions options) const {
    if (options.path.empty()) options.path = folder_.path().string();
    std::vector<std::string> names;
    for (const auto& file : list_files(options, "data.train").files) {
      names.push_back(file.lexically_relative(folder_.path()).string());
    }
    return names;
  }

  TemporaryFolder folder_;
};

using Names = std::vector<std::string>;

TEST_F(TextFolder, what_is_absent_empty_unreadable_or_left_out_altogether_is_refused_by_name) {
  TANREN_EXPECT_CONTAINS(text_error(text_of(folder_.path() / "none.txt", 2)),
                         "none.txt does not exist and as a pattern matches nothing");
  fs::create_directories(folder_.path() / "bare");
  TANREN_EXPECT_CONTAINS(text_error(text_of(folder_.path() / "bare", 2)), "holds no regular file");
  TANREN_EXPECT_CONTAINS(text_error(text_of(folder_.path() / "empty.txt", 2)),
                         "there are 0 tokens");
  auto options = text_of(folder_.path(), 2);
  options.include = {"*.py"};
  TANREN_EXPECT_CONTAINS(text_error(options), "none of the 5 files of");
  TANREN_EXPECT_CONTAINS(text_error(options), "include [*.py]; widen the choice");
  TANREN_EXPECT_CONTAINS(text_error(text_of("/dev/null", 2)), "holds no regular file");
  auto one = text_of(folder_.path() / "a.txt", 2);
  one.exclude = {"b"};
  TANREN_EXPECT_CONTAINS(text_error(one), "path names one file");
}

TEST_F(TextFolder, text_shorter_than_one_window_is_refused_with_both_lengths) {
  EXPECT_EQ(open_dataset(text_of(folder_.path() / "a.txt", 4), "data.train")->size(), 1);
  TANREN_EXPECT_CONTAINS(text_error(text_of(folder_.path() / "a.txt", 5)),
                         "[data.train] there are 5 tokens, too few for one window: context = 5 "
                         "needs 6; lower data.train.context or give more data");
}

TEST_F(TextFolder, a_folder_is_searched_in_depth_without_hidden_names) {
  EXPECT_EQ(names({}), (Names{"a.txt", "b.md", "empty.txt", "sub/c.txt", "sub/deep/d.txt"}));
  EXPECT_EQ(names({.include = {"*.txt"}}),
            (Names{"a.txt", "empty.txt", "sub/c.txt", "sub/deep/d.txt"}));
  EXPECT_EQ(names({.include = {"sub/*", "b.*"}, .exclude = {"*/d.txt"}}),
            (Names{"b.md", "sub/c.txt"}));
}

TEST_F(TextFolder, a_pattern_may_match_files_and_folders) {
  const std::string base = folder_.path().string() + "/";
  EXPECT_EQ(names({.path = base + "*.txt"}), (Names{"a.txt", "empty.txt"}));
  EXPECT_EQ(names({.path = base + "s*"}), (Names{"sub/c.txt", "sub/deep/d.txt"}));
  EXPECT_EQ(names({.path = base + "[bs]*", .exclude = {"deep/*"}}), (Names{"b.md", "sub/c.txt"}));
}

TEST_F(TextFolder, a_file_whose_name_is_a_pattern_is_that_file) {
  folder_.file("odd[1].txt", "oddly named");
  EXPECT_EQ(names({.path = (folder_.path() / "odd[1].txt").string()}), Names{"odd[1].txt"});
}

TEST_F(TextFolder, links_to_files_are_followed_links_to_folders_and_dead_ones_are_not) {
  fs::create_symlink(folder_.path() / "sub" / "c.txt", folder_.path() / "link.txt");
  fs::create_directory_symlink(folder_.path(), folder_.path() / "sub" / "round");
  fs::create_symlink(folder_.path() / "nowhere", folder_.path() / "dead");
  EXPECT_EQ(names({}),
            (Names{"a.txt", "b.md", "empty.txt", "link.txt", "sub/c.txt", "sub/deep/d.txt"}));
}

TEST_F(TextFolder, parts_share_no_file_and_leave_none_out_and_other_files_do_not_move_any) {
  for (int i = 0; i < 200; ++i) folder_.file("sub/" + std::to_string(i), "x");
  const auto whole = names({});
  const auto train = names({.part = {0, 0.9}}), eval = names({.part = {0.9, 1}});
  std::set<std::string> both(train.begin(), train.end());
  both.insert(eval.begin(), eval.end());
  EXPECT_EQ(both.size(), whole.size());
  EXPECT_EQ(train.size() + eval.size(), whole.size());
  EXPECT_GT(eval.size(), 5u);
  EXPECT_LT(eval.size(), 45u);
  fs::remove_all(folder_.path() / "sub" / "deep");
  folder_.file("new.txt", "new");
  for (const auto& name : names({.part = {0.9, 1}})) {
    EXPECT_TRUE(name == "new.txt" || std::find(eval.begin(), eval.end(), name) != eval.end());
  }
}

TEST(FileList, the_place_of_a_name_never_changes) {
  EXPECT_DOUBLE_EQ(place_of(""), 0.9576734252420561);
  EXPECT_DOUBLE_EQ(place_of("argparse.py"), 0.08215679937263076);
}

TEST_F(TextFolder, parts_of_one_file_are_stretches_of_it) {
  const auto path = folder_.file("one", "0123456789");
  auto head = text_of(path, 3), tail = text_of(path, 3);
  head.part = {0, 0.6};
  tail.part = {0.6, 1};
  EXPECT_EQ(rows_of(whole_of(*open_dataset(head, "data.train"))),
            windows_of({bytes_of("012345")}, 3, 3, false));
  EXPECT_EQ(rows_of(whole_of(*open_dataset(tail, "data.eval"))),
            windows_of({bytes_of("6789")}, 3, 3, false));
}

TEST_F(TextFolder, files_are_documents_and_any_byte_is_a_token) {
  folder_.file("b.md", std::string_view("\0\xff\x80\n", 4));
  const auto dataset = open_dataset(text_of(folder_.path(), 4), "data.train");
  const auto collated = whole_of(*dataset);
  const auto expected = windows_of(
      {bytes_of("alpha"), {0, 255, 128, 10}, bytes_of("gamma"), bytes_of("delta")}, 4, 4, false);
  EXPECT_EQ(rows_of(collated), expected);
  const Counts counts{{"samples", 5},
                      {"tokens", counted(expected)},
                      {"bytes", counted(expected)},
                      {"words", 0}};  // each document's one word begins before its first target
  EXPECT_EQ(collated.counts, counts);
  EXPECT_EQ(counted(expected), 15) << "19 bytes in four documents";
  const DataInfo info = dataset->info();
  EXPECT_EQ(info.input_shape, std::vector<int64_t>{4});
  EXPECT_EQ(info.outputs, 256);
  EXPECT_EQ(info.vocab_size, 256);
  EXPECT_TRUE(info.class_labels);
}

TEST_F(TextFolder, large_files_are_read_as_small_ones_are) {
  std::string large(3 << 20, ' ');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i >> 7);
  fs::remove(folder_.path() / "a.txt");
  const auto path = folder_.file("0.txt", large);
  const auto dataset = open_dataset(text_of(folder_.path(), 1000), "data.train");
  const auto collated = dataset->collate({0, 3145, 17});
  const auto all = windows_of(
      {bytes_of(large), bytes_of("beta"), bytes_of("gamma"), bytes_of("delta")}, 1000, 1000, false);
  EXPECT_EQ(rows_of(collated), (std::vector<testing::Window>{all[0], all[3145], all[17]}));
  EXPECT_EQ(static_cast<size_t>(dataset->size()), all.size());
}

}  // namespace
}  // namespace tanren
