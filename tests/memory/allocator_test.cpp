// memory.allocator changes nothing but the placement of tensors: a run with cached pages is bitwise
// equal to one with torch's allocator, also with loader threads and evaluation.
#include "tests/support/tiny_run.h"

#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>

#include <regex>

namespace tanren::testing {
namespace {

class Allocator : public ::testing::TestWithParam<const char*> {
 protected:
  Summary go(const std::string& allocator) { return go(allocator, allocator, 0); }
  Summary go(const std::string& allocator, const std::string& folder, int64_t stop_after) {
    RunInput input;
    input.config = tiny_config(GetParam());
    if (input.config.model.kind == "mlp") input.config.model.hidden = {1024};  // > 32 KiB
    input.config.run.steps = 20;
    input.config.precision.mode = "fp32";
    input.config.data.workers = 2;
    input.config.data.eval = input.config.data.train;
    input.config.evaluate.every = 5;
    input.config.batch.microbatch = 10;
    input.config.memory.allocator = allocator;
    if (stop_after > 0) input.config.run.stop_after = stop_after;
    input.folder = folder_.path() / folder;
    return run(input, ModelRegistry()).summary;
  }
  std::string log(const std::string& folder) const {
    static const std::regex timing(R"(,"timing":\{[^}]*\})");
    return std::regex_replace(read_file(folder_.path() / folder / "log.jsonl"), timing, "");
  }
  Snapshot checkpoint(const std::string& folder) const {
    return read_checkpoint(*latest_checkpoint(folder_.path() / folder / "checkpoints"));
  }

  TemporaryFolder folder_;
};

TEST_P(Allocator, cached_pages_change_no_bit_of_a_run) {
  const Summary plain = go("default");
  EXPECT_FALSE(cpu_allocator_installed());
  EXPECT_FALSE(plain.peak_tensor_bytes);
  const Summary cached = go("cached");
#ifndef __SANITIZE_ADDRESS__
  EXPECT_TRUE(cpu_allocator_installed());
  ASSERT_TRUE(cached.peak_tensor_bytes);
  EXPECT_GT(*cached.peak_tensor_bytes, 10000);
#endif
  EXPECT_EQ(log("default"), log("cached"));
  const Snapshot one = checkpoint("default"), other = checkpoint("cached");
  for (const auto& [name, tensor] : one.model.tensors) {
    EXPECT_TRUE(at::equal(tensor, other.model.tensors.at(name))) << name;
  }
}

TEST_P(Allocator, a_run_stopped_with_the_one_goes_on_with_the_other) {
  go("default");
  go("default", "both", 8);
  EXPECT_EQ(go("cached", "both", 0).steps, 20);
  EXPECT_EQ(log("default"), log("both"));
}

INSTANTIATE_TEST_SUITE_P(Models, Allocator, ::testing::Values("mlp", "convnet"));

}  // namespace
}  // namespace tanren::testing
