#include "tanren/formats/zip_file.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/zip_test_util.h"

#include <cstring>

namespace tanren::zip_test {
namespace {

const std::string kData(32, 'd');

std::string archive() { return testing::zip_of({{"a/data.pkl", "N."}, {"a/data/0", kData}}); }

std::string zip_error(const std::string& bytes) {
  auto error = testing::error_of<CheckpointError>([&] { zip_entries(bytes, "[checkpoint] x.pt"); });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  TANREN_EXPECT_CONTAINS(error, "[checkpoint] x.pt: ");
  return error;
}

// The archive with `bytes` of `value` at `offset` within its directory's entry `index`.
std::string with_field(int index, size_t offset, uint64_t value, size_t bytes) {
  std::string file = archive();
  size_t entry = file.find("PK\x01\x02");
  for (int i = 0; i < index; ++i) entry = file.find("PK\x01\x02", entry + 4);
  std::memcpy(file.data() + entry + offset, &value, bytes);
  return file;
}

constexpr size_t kFlags = 8, kMethod = 10, kStored = 20, kSize = 24, kNameSize = 28, kPlace = 42;

TEST(ZipFile, with_sizes_that_lie_is_refused) {
  TANREN_EXPECT_CONTAINS(zip_error(with_field(0, kSize, 100, 4)), "has two sizes");
  std::string file = with_field(1, kSize, 1'000'000'000, 4);
  const size_t entry = file.find("PK\x01\x02", file.find("PK\x01\x02") + 4);
  std::memcpy(file.data() + entry + kStored, file.data() + entry + kSize, 4);
  TANREN_EXPECT_CONTAINS(zip_error(file), "reaches past the archive's data");
  TANREN_EXPECT_CONTAINS(zip_error(with_field(0, kNameSize, 60000, 2)), "ends within a name");
  file = archive();
  const size_t end = file.rfind("PK\x05\x06");
  const uint16_t many = 60000;
  std::memcpy(file.data() + end + 10, &many, 2);
  TANREN_EXPECT_CONTAINS(zip_error(file), "claims more entries than fit");
  const uint32_t far = 0xfffffff0;
  file = archive();
  std::memcpy(file.data() + end + 16, &far, 4);
  TANREN_EXPECT_CONTAINS(zip_error(file), "ends within the directory");
}

TEST(ZipFile, whose_entries_lie_elsewhere_overlap_or_repeat_is_refused) {
  TANREN_EXPECT_CONTAINS(zip_error(with_field(1, kPlace, 0xfffffff0, 4)), "ends within an entry");
  TANREN_EXPECT_CONTAINS(zip_error(with_field(1, kPlace, 7, 4)), "not where it should be");
  // Both entries point at the second one's bytes.
  std::string file = with_field(0, kPlace, archive().find("PK\x03\x04", 4), 4);
  const size_t entry = file.find("PK\x01\x02");
  const uint32_t size = 32;
  std::memcpy(file.data() + entry + kStored, &size, 4);
  std::memcpy(file.data() + entry + kSize, &size, 4);
  TANREN_EXPECT_CONTAINS(zip_error(file), "overlap");
  TANREN_EXPECT_CONTAINS(zip_error(testing::zip_of({{"a", "1"}, {"a", "2"}})), "comes twice");
  TANREN_EXPECT_CONTAINS(zip_error(with_field(0, kFlags, 1, 2)), "is encrypted");
}

TEST(ZipFile, cut_off_anywhere_is_refused) {
  const std::string whole = archive();
  for (size_t size = 0; size < whole.size(); ++size) zip_error(whole.substr(0, size));
}

TEST(ZipFile, names_are_keys_and_never_paths) {
  const std::string odd = "../../etc/passwd";
  const std::string file = testing::zip_of({{odd, kData}, {"/root/x", "y"}, {"a\\..\\b", "z"}});
  const auto entries = zip_entries(file, "x");
  EXPECT_EQ(entries.at(odd), kData);
  EXPECT_EQ(entries.at("/root/x"), "y");
  EXPECT_EQ(entries.size(), 3u);
}

TEST(ZipFile, compressed_entries_are_passed_over) {
  const std::string file = with_field(1, kMethod, 8, 2);
  const auto entries = zip_entries(file, "x");
  EXPECT_EQ(entries.size(), 1u);
}

}  // namespace
}  // namespace tanren::zip_test
