#include "tanren/train/explained.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <gtest/gtest.h>

#include <stdexcept>

namespace tanren {
namespace {

using testing::error_of;

constexpr const char* kAssert = "CUDA error: device-side assert triggered";

// Declares that all tokens are below 50, but sample `bad` has a token of 50.
class Tokens : public Dataset {
 public:
  explicit Tokens(int64_t bad) : bad_(bad) {}
  int64_t size() const override { return 32; }
  DataInfo info() const override { return {.input_shape = {4}, .outputs = 3, .vocab_size = 50}; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Collated collated;
    collated.batch.fields.set("inputs", at::ones({count, 4}, at::kLong));
    collated.batch.fields.set("labels", at::ones({count}, at::kLong));
    for (int64_t i = 0; i < count; ++i) {
      if (indices[static_cast<size_t>(i)] == bad_) collated.batch.fields.at("inputs")[i][3] = 50;
    }
    collated.batch.ids = ids_of(indices);
    return collated;
  }

 private:
  int64_t bad_;
};

struct Explained {
  std::string name;
  int looked = 0;

  // The error's text if `run` fails on two batches, of samples 4 to 7 and 8 to 11.
  template <class E>
  std::string text(const Dataset& dataset, const std::function<void()>& run) {
    MemoryState state;
    const auto next = [&](Batch& batch) {
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < 4; ++i) indices.push_back(4 + 4 * looked + i);
      if (looked == 2) return false;
      batch = dataset.collate(indices).batch;
      ++looked;
      return true;
    };
    const Work work{
        .name = "step 12", .dataset = dataset, .classes = 3, .microbatch = 4, .next_batch = next};
    return error_of<E>([&] { explained(work, MemoryGauge(at::kCPU), state, run); });
  }
};

TEST(Explained, after_a_device_side_assert_field_sample_value_and_bound_are_named) {
  Explained explained;
  const std::string text =
      explained.text<DataError>(Tokens(9), [] { throw std::runtime_error(kAssert); });
  TANREN_EXPECT_CONTAINS(text, "step 12: inputs holds 50 in sample 9 at position 3");
  TANREN_EXPECT_CONTAINS(text, "outside [0, 50)");
  TANREN_EXPECT_CONTAINS(text, kAssert);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Explained, an_assert_over_good_data_says_what_the_batch_holds) {
  Explained explained;
  const std::string text =
      explained.text<RunError>(Tokens(-1), [] { throw std::runtime_error(kAssert); });
  for (const char* part : {kAssert, "inputs 1 to 1, labels 1 to 1", "CUDA_LAUNCH_BLOCKING=1",
                           "an index that the model computes"}) {
    TANREN_EXPECT_CONTAINS(text, part);
  }
}

TEST(Explained, a_lookup_that_fails_on_the_cpu_is_told_the_same_way) {
  for (const int64_t bad : {5, -1}) {
    Explained explained;
    const Tokens dataset(bad);
    const auto run = [&] {
      const Batch batch = dataset.collate({4, 5, 6, 7}).batch;
      at::embedding(at::zeros({bad < 0 ? 1 : 50, 2}), batch["inputs"]);
    };
    const std::string text =
        bad < 0 ? explained.text<RunError>(dataset, run) : explained.text<DataError>(dataset, run);
    TANREN_EXPECT_CONTAINS(text, "index out of range in self");
    if (bad > 0) {
      TANREN_EXPECT_CONTAINS(text, "inputs holds 50 in sample 5");
    }
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(Explained, a_library_that_fails_is_explained_as_memory_unless_the_data_are_bad) {
  const auto run = [] {
    TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate`");
  };
  Explained good, bad;
  const std::string text = good.text<RunError>(Tokens(-1), run);
  TANREN_EXPECT_CONTAINS(text, "often out of memory in disguise");
  TANREN_EXPECT_CONTAINS(text, "batch.microbatch = 2");
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  TANREN_EXPECT_CONTAINS(bad.text<DataError>(Tokens(4), run), "inputs holds 50 in sample 4");
}

TEST(Explained, our_own_errors_and_others_pass_through) {
  Explained explained;
  EXPECT_EQ(explained.text<RunError>(Tokens(5), [] { throw RunError("[guard] stop"); }),
            "[guard] stop");
  EXPECT_EQ(explained.text<std::runtime_error>(Tokens(5), [] { throw std::runtime_error("odd"); }),
            "odd");
  EXPECT_EQ(explained.looked, 0);
}

TEST(Explained, a_label_that_our_loss_refuses_gets_its_sample) {
  Explained with, without;
  const auto run = [] { throw DataError("[ops] label 9 is outside [0, 3) and not -100"); };
  TANREN_EXPECT_CONTAINS(with.text<DataError>(Tokens(6), run), "in sample 6");
  EXPECT_EQ(without.text<DataError>(Tokens(-1), run),
            "[ops] label 9 is outside [0, 3) and not -100");
}

TEST(Explained, data_that_cannot_be_read_again_do_not_hide_the_failure) {
  MemoryState state;
  const Tokens dataset(-1);
  const Work work{.name = "evaluation", .dataset = dataset, .next_batch = [](Batch&) -> bool {
                    throw DataError("[data] gone");
                  }};
  const std::string text = error_of<RunError>([&] {
    explained(work, MemoryGauge(at::kCPU), state, [] { throw std::runtime_error(kAssert); });
  });
  TANREN_EXPECT_CONTAINS(text, kAssert);
}

}  // namespace
}  // namespace tanren
