#include "tanren/model/package_host.h"

#include "tanren/base/testing.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

TEST(PackageHost, finds_the_processors_flags) {
  const testing::TemporaryFolder folder;
  const auto arm = folder.file("arm", "processor\t: 0\nFeatures\t: fp asimd\n");
  EXPECT_EQ(processor_flags(arm), (std::vector<std::string>{"fp", "asimd"}));
  const auto x86 = folder.file("x86", "model name\t: CPU\nflags\t\t: fpu avx2\nflags\t: none\n");
  EXPECT_EQ(processor_flags(x86), (std::vector<std::string>{"fpu", "avx2"}));
  EXPECT_TRUE(processor_flags(folder.path() / "absent").empty());
}

}  // namespace
}  // namespace tanren
