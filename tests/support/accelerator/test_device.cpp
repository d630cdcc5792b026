// Linked into a test program: TANREN_TEST_DEVICE=sim:<i> runs its tests on the simulated
// accelerator. After each test, a violation fails it.
#include "tests/support/test_device.h"

#include "tests/support/accelerator/accelerator.h"
#include "tests/support/accelerator/kind.h"

namespace tanren::testing {
namespace {

class NoViolations final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo& /*test*/) override {
    for (const auto& line : sim::take_violations()) ADD_FAILURE() << line;
  }
};

const bool kInstalled = [] {
  if (!test_device().starts_with("sim")) return false;
  sim::install();
  test_accelerators() = sim::accelerator_kind();
  return true;
}();

// Listeners are added once the tests run.
class Listen final : public ::testing::Environment {
  void SetUp() override {
    if (kInstalled) ::testing::UnitTest::GetInstance()->listeners().Append(new NoViolations);
  }
};
[[maybe_unused]] const auto* const kListen = ::testing::AddGlobalTestEnvironment(new Listen);

}  // namespace
}  // namespace tanren::testing
