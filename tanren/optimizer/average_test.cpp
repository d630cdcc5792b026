#include "tanren/optimizer/average.h"

#include "tanren/base/error.h"
#include "tanren/optimizer/fixture_test_util.h"

#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

#include <optional>

namespace tanren::testing {
namespace {

const std::vector<std::string> kParameters = {"linear.weight", "linear.bias", "norm.weight",
                                              "norm.bias"};
const std::vector<std::string> kBuffers = {"norm.running_mean", "norm.running_var"};

// The tensors of tests/fixtures/make/average_fixtures.py.
struct Weights {
  std::vector<NamedParameter> parameters, buffers;

  Weights() {
    for (const auto& name : kParameters) {
      parameters.push_back({name, at::zeros_like(history(name)[0]).requires_grad_()});
    }
    for (const auto& name : kBuffers) buffers.push_back({name, at::zeros_like(history(name)[0])});
    buffers.push_back({"norm.num_batches_tracked", at::zeros({}, at::kLong)});
  }
  static const at::Tensor& history(const std::string& name) {
    return fixture("average").at("weights/" + name);
  }
  // Sets the tensors to their values after update number `update` (from 0).
  void set(int64_t update) {
    const at::NoGradGuard no_grad;
    for (auto* list : {&parameters, &buffers}) {
      for (auto& each : *list) {
        if (each.tensor.is_floating_point()) each.tensor.copy_(history(each.name)[update]);
      }
    }
  }
};

// After each of 12 updates every averaged tensor equals torch's.
void expect_parity(const AveragePlan& plan, const std::string& what) {
  Weights weights;
  WeightAverage average(plan, weights.parameters, weights.buffers);
  for (int64_t update = 0; update < 12; ++update) {
    weights.set(update);
    average.update(update + 1);
    const State state = average.state();
    ASSERT_EQ(state.tensors.size(), 6u) << "integer buffers have no average";
    for (const auto& [name, tensor] : state.tensors) {
      EXPECT_TRUE(at::equal(tensor, fixture("average").at(what + "/" + name)[update]))
          << what << " " << name << " after update " << update;
    }
  }
}

TEST(WeightAverage, refuses_16_bit_weights_in_which_it_would_stand_still) {
  const std::vector<NamedParameter> half = {{"w", at::zeros({2}, at::kBFloat16)}};
  EXPECT_THROW(WeightAverage({.kind = Averaging::ema}, half), ConfigError);
}

TEST(WeightAverage, refuses_another_models_state) {
  Weights weights;
  WeightAverage average({.kind = Averaging::ema}, weights.parameters, weights.buffers);
  State state = average.state();
  EXPECT_THROW(average.load({}), CheckpointError);
  state.tensors.set("norm.bias", at::zeros({9}));
  EXPECT_THROW(average.load(state), CheckpointError);
}

TEST(WeightAverage, refuses_updates_and_saves_while_the_module_has_the_averages) {
  Weights weights;
  WeightAverage average({.kind = Averaging::ema}, weights.parameters);
  average.update(1);
  const AverageScope scope({&average});
  EXPECT_THROW(average.update(2), Error);
  EXPECT_THROW(average.state(), Error);
  EXPECT_THROW(average.load({}), Error);
}

TEST(WeightAverage, of_kind_ema_is_torchs_bitwise) {
  expect_parity({.kind = Averaging::ema, .decay = 0.9, .decay_warmup = false}, "ema");
}

TEST(WeightAverage, of_kind_swa_is_torchs_bitwise) {
  expect_parity({.kind = Averaging::swa}, "swa");
}

TEST(WeightAverage, copies_buffers_where_asked_as_torch_does_without_use_buffers) {
  expect_parity({.kind = Averaging::ema,
                 .decay = 0.9,
                 .decay_warmup = false,
                 .buffers = AverageBuffers::copy},
                "ema_copied");
}

TEST(WeightAverage, warms_its_decay_up) {
  at::Tensor weight = at::ones({1}, at::kDouble);
  WeightAverage average({.kind = Averaging::ema, .decay = 0.99, .decay_warmup = true},
                        {{"w", weight}});
  double expected = 0;
  for (int t = 0; t < 2000; ++t) {
    weight.fill_(t);
    average.update(t + 1);
    const double decay = t == 0 ? 0 : std::min(0.99, (1.0 + t) / (10.0 + t));
    expected = decay * expected + (1 - decay) * t;
  }
  EXPECT_NEAR(average.state().tensors.at("w").item<double>(), expected, 1e-9);
}

TEST(WeightAverage, begins_at_its_start_and_takes_every_kth_step) {
  at::Tensor weight = at::zeros({1});
  WeightAverage average({.kind = Averaging::swa, .every = 3, .start = 5}, {{"w", weight}});
  for (int64_t step = 1; step <= 12; ++step) {
    weight.fill_(static_cast<double>(step));
    average.update(step);
    EXPECT_EQ(average.num_updates(), step < 6 ? 0 : step / 3 - 1);
  }
  EXPECT_EQ(average.state().tensors.at("w").item<float>(), 9);  // of 6, 9, 12
}

TEST(WeightAverage, that_has_begun_goes_on_when_a_longer_run_moves_its_start) {
  at::Tensor weight = at::ones({1});
  WeightAverage before({.kind = Averaging::swa, .start = 2}, {{"w", weight}});
  before.update(2);
  WeightAverage after({.kind = Averaging::swa, .start = 8}, {{"w", weight}});
  after.load(before.state());
  after.update(3);
  EXPECT_EQ(after.num_updates(), 2);
}

TEST(WeightAverage, never_updated_stands_aside_for_the_raw_weights) {
  at::Tensor weight = at::ones({3});
  const void* place = weight.data_ptr();
  WeightAverage average({.kind = Averaging::ema, .start = 100}, {{"w", weight}});
  average.update(1);
  const AverageScope scope({&average, nullptr});
  EXPECT_FALSE(scope.active());
  EXPECT_EQ(weight.data_ptr(), place);
}

TEST(WeightAverage, exchanges_and_gives_back_bitwise_also_when_an_exception_passes) {
  Weights weights;
  WeightAverage average({.kind = Averaging::ema, .decay = 0.5, .decay_warmup = false},
                        weights.parameters, weights.buffers);
  weights.set(0);
  average.update(1);
  weights.set(1);
  average.update(2);
  const auto raw = values_of(weights.parameters);
  std::vector<at::Tensor> averaged;
  averaged.reserve(kParameters.size());
  for (const auto& name : kParameters) averaged.push_back(average.state().tensors.at(name).clone());
  std::vector<const void*> places;
  places.reserve(weights.parameters.size());
  for (const auto& p : weights.parameters) places.push_back(p.tensor.data_ptr());
  try {
    const AverageScope scope({&average});
    EXPECT_TRUE(scope.active());
    EXPECT_TRUE(all_equal(values_of(weights.parameters), averaged));
    EXPECT_TRUE(weights.parameters[0].tensor.requires_grad());
    throw RunError("in the middle");
  } catch (const RunError&) {
  }
  EXPECT_TRUE(all_equal(values_of(weights.parameters), raw));
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(weights.parameters[i].tensor.data_ptr(), places[i]) << "the weights did not move";
    EXPECT_TRUE(at::equal(average.state().tensors.at(kParameters[i]), averaged[i]));
  }
}

TEST(WeightAverage, has_its_weights_strides_and_resumes_bitwise) {
  const auto weight = at::randn({4, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast);
  WeightAverage one({.kind = Averaging::ema}, {{"w", weight}});
  EXPECT_EQ(one.state().tensors.at("w").strides(), weight.strides());
  for (int64_t step = 1; step < 4; ++step) {
    weight.mul_(1.5);
    one.update(step);
  }
  WeightAverage other({.kind = Averaging::ema}, {{"w", weight}});
  other.load(one.state());
  for (int64_t step = 4; step < 7; ++step) {
    weight.mul_(0.7);
    one.update(step);
    other.update(step);
  }
  EXPECT_TRUE(at::equal(one.state().tensors.at("w"), other.state().tensors.at("w")));
  EXPECT_EQ(one.num_updates(), other.num_updates());
}

// Objectives that are updated at every batch, or at every fifth or third batch of the run.
TEST(WeightAverage, of_an_objective_out_of_turn_counts_the_batches_of_the_run) {
  const auto updates_of = [](int64_t every, int64_t turns, int64_t batches) {
    const auto weight = at::zeros({2});
    WeightAverage average({.kind = Averaging::swa, .every = every, .start = 10}, {{"w", weight}});
    for (int64_t step = 1; step * turns <= batches; ++step) average.update(step, turns);
    return average.num_updates();
  };
  EXPECT_EQ(updates_of(5, 1, 20), 3);  // after batches 10, 15 and 20
  EXPECT_EQ(updates_of(5, 5, 20), 3);
  EXPECT_EQ(updates_of(5, 3, 20), 2);  // after 12, the first past 10, and 15
  EXPECT_EQ(updates_of(1, 5, 20), 3);
}

TEST(AveragingRate, is_constant_once_averaging_has_begun) {
  const AveragePlan plan{.kind = Averaging::swa, .start = 5, .learning_rate = 0.3};
  EXPECT_EQ(averaging_rate(plan, 4, 0.1), 0.1);
  EXPECT_EQ(averaging_rate(plan, 5, 0.1), 0.3);
  EXPECT_EQ(averaging_rate({.kind = Averaging::swa}, 5, 0.1), 0.1);
}

}  // namespace
}  // namespace tanren::testing
