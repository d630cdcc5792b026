// A number in the data that the model cannot handle: the run ends with a line that names the
// number.
#include "tests/support/tiny_run.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/train_loop.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace tanren::testing {
namespace {

// A user's dataset that declares tokens below 50 and two classes, and violates that.
class Careless : public Dataset {
 public:
  Careless(int64_t sample, std::string field, int64_t value)
      : sample_(sample), field_(std::move(field)), value_(value) {}
  int64_t size() const override { return 24; }
  DataInfo info() const override { return {.input_shape = {6}, .outputs = 2, .vocab_size = 50}; }
  Collated collate(const std::vector<int64_t>& indices) const override {
    const auto count = static_cast<int64_t>(indices.size());
    Collated collated;
    collated.batch.ids = ids_of(indices);
    at::Tensor inputs = (collated.batch.ids.unsqueeze(1) + at::arange(6)) % 50;
    at::Tensor labels = collated.batch.ids % 2;
    for (int64_t i = 0; i < count; ++i) {
      if (indices[static_cast<size_t>(i)] != sample_) continue;
      (field_ == "inputs" ? inputs[i][4] : labels[i]).fill_(value_);
    }
    collated.batch.fields.set("inputs", inputs);
    collated.batch.fields.set("labels", labels);
    collated.counts["samples"] = static_cast<double>(count);
    return collated;
  }

 private:
  int64_t sample_;
  std::string field_;
  int64_t value_;
};

RunConfig careless_config() {
  auto config = tiny_config("bert");
  config.model.num_layers = 1;
  config.model.hidden_size = 16;
  config.model.num_heads = 2;
  config.model.task = "classify";
  config.batch.global_batch = "8";
  config.run.steps = 3;
  return config;
}

std::string failure_of_run(const Dataset& dataset) {
  TinyRun run(careless_config(), &dataset, std::nullopt);
  return error_of<DataError>(
      [&] { train_loop(run.state, run.parts, LoopInputs{.train = dataset}); });
}

TEST(OddErrors, a_token_beyond_the_vocabulary_ends_a_run_with_its_name) {
  const std::string text = failure_of_run(Careless(13, "inputs", 77));
  std::printf("%s\n", text.c_str());
  TANREN_EXPECT_CONTAINS(text, "inputs holds 77 in sample 13 at position 4");
  TANREN_EXPECT_CONTAINS(text, "outside [0, 50)");
  TANREN_EXPECT_CONTAINS(text, "[train] step ");
}

TEST(OddErrors, a_label_beyond_the_classes_ends_a_run_with_its_name) {
  const std::string text = failure_of_run(Careless(20, "labels", 2));
  TANREN_EXPECT_CONTAINS(text, "labels holds 2 in sample 20");
  TANREN_EXPECT_CONTAINS(text, "outside [0, 2)");
}

TEST(OddErrors, an_evaluation_names_it_too) {
  const Careless good(-1, "", 0), bad(17, "inputs", -3);
  auto config = careless_config();
  config.evaluate.batch = 4;
  TinyRun run(config, &good, std::nullopt);
  const std::string text = error_of<DataError>([&] { evaluate(run.state, run.parts, bad); });
  TANREN_EXPECT_CONTAINS(text, "evaluation: inputs holds -3 in sample 17 at position 4");
}

}  // namespace
}  // namespace tanren::testing
