// The device of the whole-run tests: the CPU, or TANREN_TEST_DEVICE, which the gpu-labelled twins
// set. If that device does not exist, a twin skips all its tests and prints why.
#pragma once

#include "tanren/train/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tanren::testing {

inline std::string test_device() {
  const char* device = std::getenv("TANREN_TEST_DEVICE");
  return device != nullptr ? device : "cpu";
}

inline bool has_test_device() {
  if (test_device() == "cpu") return true;
  Machine machine;
  probe_accelerators(machine, test_device());
  return machine.num_cuda > 0;
}

class TestDeviceEnvironment : public ::testing::Environment {
  void SetUp() override {
    if (!has_test_device()) {
      GTEST_SKIP() << "no CUDA device here, and TANREN_TEST_DEVICE is " << test_device();
    }
  }
};
inline ::testing::Environment* const kTestDeviceEnvironment =
    ::testing::AddGlobalTestEnvironment(new TestDeviceEnvironment);

}  // namespace tanren::testing
