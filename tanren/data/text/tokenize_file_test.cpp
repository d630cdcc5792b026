#include "tanren/data/text/tokenize_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"

#include <nlohmann/json.hpp>

#include <cstring>

namespace tanren {
namespace {

using testing::TemporaryFolder;

TokenIds read_ids(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::vector<uint16_t> ids(bytes.size() / 2);
  std::memcpy(ids.data(), bytes.data(), bytes.size());
  return TokenIds(ids.begin(), ids.end());
}

TEST(TokenizeFile, an_unreadable_text_is_refused_and_leaves_no_file) {
  const TemporaryFolder folder;
  const auto tokenizer = load_tokenizer(TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json");
  EXPECT_THROW(tokenize_file(folder.path() / "absent", folder.path() / "out.bin", *tokenizer, 1),
               InputError);
  EXPECT_EQ(folder.num_entries(), 0u);
}

TEST(TokenizeFile, in_chunks_and_threads_gives_the_ids_of_the_whole_text) {
  const TemporaryFolder folder;
  const std::filesystem::path fixtures = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer";
  std::string text;
  const auto expected = nlohmann::json::parse(read_file(fixtures / "expected.json"));
  for (const auto& item : expected["bpe"]) {
    text += item["text"].get<std::string>() + (text.size() % 3 == 0 ? "\n" : "  ");
  }
  std::erase(text, '\0');  // no text file may hold a 0
  const auto file = folder.file("text", text);
  for (const char* name : {"bpe.json", "uncased.json", "cased.json"}) {
    const auto tokenizer = load_tokenizer(fixtures / name);
    const TokenIds whole = tokenizer->encode(text);
    for (const int64_t chunk : {1, 7, 100, 1000, 1 << 20}) {
      for (const int64_t threads : {1, 3}) {
        const auto done = tokenize_file(file, folder.path() / "out", *tokenizer, threads, chunk);
        EXPECT_EQ(read_ids(folder.path() / "out"), whole) << name << " " << chunk << " " << threads;
        EXPECT_EQ(done.tokens, static_cast<int64_t>(whole.size()));
        EXPECT_EQ(done.bytes, static_cast<int64_t>(text.size()));
        EXPECT_EQ(done.width, 2);
      }
    }
  }
}

TEST(TokenizeFile, shows_the_bytes_of_each_text_that_it_reads) {
  const TemporaryFolder folder;
  const auto tokenizer = load_tokenizer(TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json");
  const std::vector<std::string> texts = {"the forge  trains\n", "", "the blade stops"};
  std::vector<std::filesystem::path> files;
  for (size_t i = 0; i < texts.size(); ++i) {
    files.push_back(folder.file("text" + std::to_string(i), texts[i]));
  }
  std::vector<std::string> seen(texts.size());
  tokenize_texts(
      files, "data.train", *tokenizer, 2, [](size_t, const TokenIds&) {},
      [&](size_t text, std::string_view bytes) { seen.at(text) += bytes; }, /*chunk_bytes=*/4);
  EXPECT_EQ(seen, texts);
}

}  // namespace
}  // namespace tanren
