#include "tanren/post_training/quantize_results.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/interop/export.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

namespace tanren {
namespace {

namespace fs = std::filesystem;

class QuantizeResults : public ::testing::Test {
 protected:
  void write(const std::string& scheme, bool has_model = true) const {
    QuantizeReport report;
    report.written = has_model ? scheme : "";
    report.file = "model of " + scheme;
    const auto write_model = [&](const fs::path& file) { write_file(file, "model of " + scheme); };
    using WriteModel = std::function<void(const fs::path&)>;
    write_results(folder_.path(), report, has_model ? WriteModel(write_model) : nullptr);
  }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.insert(entry.path().filename().string());
    }
    return found;
  }
  // The folder that an error names, in which results are kept.
  static fs::path kept_by(const std::string& error) {
    const std::string before = "is kept in ";
    const size_t at = error.find(before);
    return at == std::string::npos ? "nowhere" : error.substr(at + before.size());
  }
  std::string text(const char* name) const { return read_file(folder_.path() / name); }

  const std::set<std::string> reports_{"quantize.html", "quantize.json", "quantize.txt"};
  testing::TemporaryFolder folder_;
};

TEST_F(QuantizeResults, that_cannot_be_written_leave_the_earlier_ones) {
  write("static");
  const std::string report = text("quantize.txt");
  EXPECT_THROW(write_results(folder_.path(), {},
                             [](const fs::path&) { throw RunError("[file] the disk is full"); }),
               RunError);
  EXPECT_EQ(text(kWholeFile), "model of static");
  EXPECT_EQ(text("quantize.txt"), report);
  EXPECT_EQ(names().size(), 4u) << "nothing is left aside";
}

// A failure leaves the same files as a process that is killed at that point.
TEST_F(QuantizeResults, no_report_stands_beside_another_ones_model) {
  write("static");
  fs::remove(folder_.path() / "quantize.html");
  fs::create_directories(folder_.path() / "quantize.html" / "in the way");
  const auto error = testing::error_of<RunError>([&] { write("dynamic"); });
  TANREN_EXPECT_CONTAINS(error, "quantize.html: ");
  EXPECT_EQ(text(kWholeFile), "model of static");
  const fs::path kept = kept_by(error);
  EXPECT_EQ(names(), (std::set<std::string>{kWholeFile, "quantize.html", kept.filename().string()}))
      << "no report";
  EXPECT_EQ(read_file(kept / kWholeFile), "model of dynamic");
  TANREN_EXPECT_CONTAINS(read_file(kept / "quantize.txt"), "written: dynamic");
  fs::remove_all(folder_.path() / "quantize.html");

  write("static");
  EXPECT_FALSE(fs::exists(kept)) << "newer results are there";
  fs::remove(folder_.path() / kWholeFile);
  fs::create_directories(folder_.path() / kWholeFile / "in the way");
  const fs::path next = kept_by(testing::error_of<RunError>([&] { write("dynamic"); }));
  EXPECT_EQ(names(), (std::set<std::string>{kWholeFile, next.filename().string()})) << "no report";
}

TEST_F(QuantizeResults, of_two_processes_are_made_in_folders_of_their_own) {
  write_results(folder_.path(), {}, [&](const fs::path& file) {
    write("dynamic");  // another process, from its beginning to its end
    EXPECT_TRUE(fs::exists(file.parent_path()));
    write_file(file, "model of static");
  });
  EXPECT_EQ(text(kWholeFile), "model of static");
  EXPECT_EQ(names().size(), 4u) << "nothing is left aside";
}

TEST_F(QuantizeResults, replace_all_of_the_earlier_ones) {
  const fs::path leftover = folder_.path() / ".tmp-quantize-abcdefgh";
  const fs::path of_others = folder_.path() / ".tmp-quantizer-abcdefgh";
  fs::create_directories(leftover / "of a process that was killed");
  fs::create_directories(of_others);
  write("static");
  EXPECT_FALSE(fs::exists(leftover));
  EXPECT_TRUE(fs::remove(of_others));
  write("dynamic");
  EXPECT_EQ(text(kWholeFile), "model of dynamic");
  TANREN_EXPECT_CONTAINS(text("quantize.txt"), "written: dynamic");
  write("", /*has_model=*/false);
  EXPECT_EQ(names(), reports_);
}

}  // namespace
}  // namespace tanren
