// Calls the fuzz targets in an ordinary build with the seeds of `make fuzz` and every input that
// once broke a reader: seeds/TARGET/ok_* must be read, bad_* refused, crashes/TARGET/* either.

#include "tests/fuzz/targets.h"

#include "tanren/base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <map>

namespace tanren::fuzz {
namespace {

namespace fs = std::filesystem;

using Target = bool (*)(std::string_view);
const std::map<std::string, Target> kTargets = {{"safetensors", safetensors}, {"pt", pt},
                                                {"pickle", pickle},           {"index", index},
                                                {"tokenizer", tokenizer},     {"config", config},
                                                {"quantized", quantized},     {"package", package}};
const fs::path kFolder = TANREN_SOURCE_DIR "/tests/fuzz";

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

long peak_kib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Fuzz, seeds_are_read_or_refused_as_their_names_say) {
  for (const auto& [name, target] : kTargets) {
    int read = 0, refused = 0;
    for (const auto& path : files_in(kFolder / "seeds" / name)) {
      SCOPED_TRACE(path.string());
      const bool is_good = path.filename().string().rfind("ok_", 0) == 0;
      bool was_read = false;
      ASSERT_NO_THROW(was_read = target(read_file(path)));
      EXPECT_EQ(was_read, is_good);
      ++(is_good ? read : refused);
    }
    EXPECT_GT(read, 0) << name;
    EXPECT_GT(refused, 0) << name;
  }
}

TEST(Fuzz, inputs_that_once_broke_a_reader_no_longer_do) {
  for (const auto& folder : files_in(kFolder / "crashes")) {
    const auto found = kTargets.find(folder.filename().string());
    ASSERT_NE(found, kTargets.end()) << folder << " is the name of no target";
    for (const auto& path : files_in(folder)) {
      SCOPED_TRACE(path.string());
      const long before = peak_kib();
      EXPECT_NO_THROW(found->second(read_file(path)));
      EXPECT_LT(peak_kib() - before, 512 * 1024);  // KiB; the files have a few kilobytes
    }
  }
}

}  // namespace
}  // namespace tanren::fuzz
