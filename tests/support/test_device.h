// The device of the whole-run tests: TANREN_TEST_DEVICE, or else the CPU. The twins of a test set
// this variable: <name>_device to "sim:0" (support/accelerator), <name>_gpu to "cuda:0". If that
// device does not exist, a twin skips all its tests and prints why.
#pragma once

#include "tanren/train/device.h"
#include "tanren/train/registry.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tanren::testing {

inline std::string test_device() {
  const char* device = std::getenv("TANREN_TEST_DEVICE");
  return device != nullptr ? device : "cpu";
}

// The kind of that device. support/accelerator/test_device.cpp sets it to the simulated one.
inline AcceleratorKind& test_accelerators() {
  static AcceleratorKind kind;
  return kind;
}

inline Registry test_registry() { return {{}, {}, test_accelerators()}; }

inline bool has_test_device() {
  return test_device() == "cpu" || test_accelerators().probe().count() > 0;
}

class TestDeviceEnvironment : public ::testing::Environment {
  void SetUp() override {
    if (!has_test_device()) {
      GTEST_SKIP() << "no such device here: TANREN_TEST_DEVICE is " << test_device();
    }
  }
};
inline ::testing::Environment* const kTestDeviceEnvironment =
    ::testing::AddGlobalTestEnvironment(new TestDeviceEnvironment);

}  // namespace tanren::testing
