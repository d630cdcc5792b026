#include "tanren/data/text/token_cache.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/log.h"
#include "tanren/base/testing.h"
#include "tanren/data/text/token_test_util.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::rows_of;
using testing::TemporaryFolder;
using testing::whole_of;
using testing::Window;

const std::string kTokenizers = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/";

// The lines of the log while it lives.
class LogLines {
 public:
  LogLines() {
    before_ = set_log_sink([this](std::string_view line) { lines_ += std::string(line) + "\n"; });
  }
  ~LogLines() { set_log_sink(before_); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  std::string take() { return std::exchange(lines_, ""); }

 private:
  std::string lines_;
  LogSink before_;
};

class TokenCache : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      text += "the blade remembers blow " + std::to_string(i * 7919 % 1000) + "\n";
    }
    folder_.file("book.txt", text);
    fs::create_directories(at("runs"));
  }

  fs::path at(const std::string& name) const { return folder_.path() / name; }
  SourceOptions options(const std::string& tokenizer = "bpe.json") const {
    return {.kind = "text",
            .path = at("book.txt").string(),
            .context = 16,
            .tokenizer = kTokenizers + tokenizer,
            .cache = at("runs/.tokens").string()};
  }
  SourceOptions without_cache() const {
    auto plain = options();
    plain.cache.clear();
    return plain;
  }
  static std::vector<Window> windows(const SourceOptions& options) {
    return rows_of(whole_of(*open_dataset(options, "data.train")));
  }
  std::vector<fs::path> kept() const {
    std::vector<fs::path> files;
    if (!fs::is_directory(at("runs/.tokens"))) return files;
    for (const auto& entry : fs::directory_iterator(at("runs/.tokens"))) {
      files.push_back(entry.path());
    }
    return files;
  }
  static ino_t inode(const fs::path& file) {
    struct stat facts {};
    EXPECT_EQ(::stat(file.c_str(), &facts), 0);
    return facts.st_ino;
  }

  TemporaryFolder folder_;
};

TEST_F(TokenCache, lies_beside_the_run_folder) {
  EXPECT_EQ(token_cache_beside("/data/runs/a"), "/data/runs/.tokens");
  EXPECT_EQ(token_cache_beside("/data/runs/a/"), "/data/runs/.tokens");
  EXPECT_EQ(token_cache_beside("/data/runs/b/../a"), "/data/runs/.tokens");
}

TEST_F(TokenCache, a_full_disk_is_one_line_and_leaves_no_file) {
  const testing::FullDiskScope full(2000);
  TANREN_EXPECT_CONTAINS(error_of<RunError>([&] { windows(options()); }), "free space");
  EXPECT_EQ(kept().size(), 0u);
}

TEST_F(TokenCache, a_place_that_cannot_be_written_costs_the_cache_alone) {
  LogLines log;
  folder_.file("runs/.tokens", "a file, where the folder would be");
  EXPECT_EQ(windows(options()), windows(without_cache()));
  TANREN_EXPECT_CONTAINS(log.take(), "runs/.tokens cannot be written; the token ids of the text");
  EXPECT_TRUE(fs::is_regular_file(at("runs/.tokens")));
}

TEST_F(TokenCache, without_a_folder_nothing_is_left) {
  const TemporaryFolder temporary;
  const char* before = std::getenv("TMPDIR");
  const std::string kept_value = before == nullptr ? "" : before;
  ::setenv("TMPDIR", temporary.path().c_str(), 1);
  const auto dataset = open_dataset(without_cache(), "data.train");
  EXPECT_EQ(temporary.num_entries(), 0u) << "also while it is read";
  EXPECT_EQ(rows_of(whole_of(*dataset)).size(), static_cast<size_t>(dataset->size()));
  ::setenv("TMPDIR", (temporary.path() / "absent").c_str(), 1);
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { windows(without_cache()); }),
                         "set TMPDIR to one");
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept_value.c_str(), 1);
}

TEST_F(TokenCache, is_used_by_later_starts_and_other_parts_of_the_same_file) {
  LogLines log;
  const auto first = windows(options());
  TANREN_EXPECT_CONTAINS(log.take(), "[data.train] tokenized ");
  ASSERT_EQ(kept().size(), 1u);
  const fs::path file = kept().front();
  const ino_t made = inode(file);
  EXPECT_EQ(windows(options()), first);
  auto part = options();
  part.part = {0.9, 1};
  EXPECT_LT(windows(part).size(), first.size());
  EXPECT_EQ(kept().size(), 1u);
  EXPECT_EQ(inode(file), made) << "it was not written again";
  EXPECT_EQ(log.take(), "");
}

TEST_F(TokenCache, another_text_or_tokenizer_has_another_file) {
  windows(options());
  windows(options("cased.json"));
  EXPECT_EQ(kept().size(), 2u);
  const auto before = windows(options());
  std::string text = read_file(at("book.txt"));
  text.replace(text.find("blade"), 5, "anvil");
  folder_.file("book.txt", text);
  EXPECT_NE(windows(options()), before) << "of the same size";
  EXPECT_EQ(kept().size(), 3u);
  EXPECT_EQ(windows(options()), windows(without_cache()));
}

TEST_F(TokenCache, a_damaged_or_foreign_file_is_made_anew) {
  LogLines log;
  const auto expected = windows(options());
  const fs::path file = kept().front();
  const std::string sound = read_file(file);
  const auto changed = [&](size_t place) {
    std::string bytes = sound;
    bytes.at(place) = static_cast<char>(bytes.at(place) ^ 1);
    return bytes;
  };
  const std::vector<std::string> broken = {
      "",
      "not ours",
      std::string(sound.size(), '\0'),
      sound.substr(0, sound.size() / 2),
      sound.substr(0, sound.size() - 1),
      sound + "x",
      sound + sound,
      changed(0),                  // the format
      changed(17),                 // the key
      changed(24),                 // the width
      changed(40),                 // an id
      changed(sound.size() / 2),   // another
      changed(sound.size() - 30),  // how many there are
      changed(sound.size() - 20),  // the hash
      changed(sound.size() - 1),
  };
  for (size_t i = 0; i < broken.size(); ++i) {
    folder_.file("runs/.tokens/" + file.filename().string(), broken[i]);
    log.take();
    EXPECT_EQ(windows(options()), expected) << i;
    TANREN_EXPECT_CONTAINS(log.take(), "is damaged or not ours; its token ids are made anew");
    EXPECT_EQ(read_file(file), sound) << i;
  }
  EXPECT_EQ(kept().size(), 1u);
}

TEST_F(TokenCache, starts_at_the_same_time_make_one_file_and_read_the_same) {
  LogLines log;
  const auto expected = windows(without_cache());
  log.take();
  std::vector<std::thread> starts;
  std::atomic<int> equal = 0;
  for (int i = 0; i < 6; ++i) {
    starts.emplace_back([&] { equal += windows(options()) == expected ? 1 : 0; });
  }
  for (auto& start : starts) start.join();
  EXPECT_EQ(equal.load(), 6);
  EXPECT_EQ(kept().size(), 1u);
  const std::string lines = log.take();
  EXPECT_EQ(lines.find("tokenized"), lines.rfind("tokenized")) << lines;
}

// If a change of ids is intended, update the numbers here and raise kTokenizerVersion (issue 26).
TEST(TokenIdsOf, our_tokenizers_are_those_of_their_version) {
  EXPECT_EQ(kTokenizerVersion, 1);
  const std::string text =
      "The blade's edge: 1,234.5 m, don't \u2014 na\u00efve Stra\u00dfe \u65e5\u672c tanren\t\n"
      "  it'll re-forge it 42 times\u2026 e\u0301!\n";
  const std::vector<std::pair<std::string, uint32_t>> expected{
      {"bpe.json", 1293985915}, {"cased.json", 1477276681}, {"uncased.json", 1914820789}};
  for (const auto& [file, of_ids] : expected) {
    uint32_t sum = 0;
    for (const int32_t id : load_tokenizer(kTokenizers + file)->encode(text)) {
      sum = sum * 31 + static_cast<uint32_t>(id);
    }
    EXPECT_EQ(sum, of_ids) << file;
  }
}

TEST_F(TokenCache, its_texts_and_tokenizer_tell_a_resumed_run_whether_they_are_the_same) {
  const auto hashes = [&](const SourceOptions& source) {
    std::vector<uint64_t> all;
    for (const DataPart& part : open_dataset(source, "data.train")->parts()) {
      all.push_back(part.hash);
    }
    return all;
  };
  const auto before = hashes(options());
  ASSERT_EQ(before.size(), 4u);  // names, sizes, contents, tokenizer
  EXPECT_EQ(hashes(options()), before);
  EXPECT_EQ(hashes(without_cache()), before);
  EXPECT_NE(hashes(options("cased.json")).back(), before.back());
  std::string text = read_file(at("book.txt"));
  text[3] = 'x';
  folder_.file("book.txt", text);
  const auto after = hashes(options());
  EXPECT_EQ(after[1], before[1]);
  EXPECT_NE(after[2], before[2]);
  EXPECT_EQ(after[3], before[3]);
}

}  // namespace
}  // namespace tanren
