// libFuzzer's entry point. An exception that escapes ends the process, which libFuzzer reports.
#include "tests/fuzz/targets.h"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tanren::fuzz::TANREN_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
