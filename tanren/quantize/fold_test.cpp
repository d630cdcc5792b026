#include "tanren/quantize/fold.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tanren {
namespace {

constexpr double kNormEps = 1e-3;

// A convolution and a batch norm with numbers as training leaves them.
struct NormedUnit : torch::nn::Module {
  at::Tensor weight, bias, scale, shift, mean, variance;  // undefined: it has none

  NormedUnit(int64_t in, int64_t out, bool has_bias, bool is_affine) {
    weight = register_parameter("weight", at::randn({out, in, 3, 3}));
    if (has_bias) bias = register_parameter("bias", at::randn({out}));
    if (is_affine) {
      scale = register_parameter("scale", at::randn({out}));  // of both signs
      shift = register_parameter("shift", at::randn({out}));
    }
    mean = register_buffer("mean", at::randn({out}));
    variance = register_buffer("variance", at::rand({out}) + 0.1);
  }
  at::Tensor convolve(const at::Tensor& x) const { return at::conv2d(x, weight, bias, 1, 1); }
  at::Tensor normalise(const at::Tensor& x) const {
    return at::batch_norm(x, scale, shift, mean, variance, is_training(), 0.1, kNormEps, false);
  }
};

struct NormedModel : torch::nn::Module {
  std::map<std::string, std::shared_ptr<NormedUnit>> units;

  NormedModel() {
    at::manual_seed(8);
    add("plain", 3, 4, false, true);
    add("biased", 4, 4, true, true);
    add("not_affine", 4, 4, true, false);
    add("residual", 4, 4, false, true);  // its convolution's result is also added
    add("twice", 4, 4, false, true);     // runs twice
    add("moved", 4, 4, false, true);     // relu in place between convolution and norm
    add("read", 4, 4, false, true);      // its weight has another reader
    add("late", 4, 4, false, true);      // its norm follows a sum; its convolution does not run
  }
  at::Tensor forward(const at::Tensor& images) const {
    const auto both = [&](const std::string& name, const at::Tensor& x) {
      const NormedUnit& unit = *units.at(name);
      return unit.normalise(unit.convolve(x).contiguous()).relu();  // contiguous returns itself
    };
    at::Tensor x = both("not_affine", both("biased", both("plain", images)));
    const NormedUnit &residual = *units.at("residual"), &moved = *units.at("moved");
    const at::Tensor inner = residual.convolve(x);
    x = residual.normalise(inner) + inner;
    x = both("twice", both("twice", x));
    at::Tensor cut = moved.convolve(x);
    cut.relu_();
    x = both("read", moved.normalise(cut)) + units.at("read")->weight.mean();
    return units.at("late")->normalise(x);  // after a sum
  }

 private:
  void add(const std::string& name, int64_t in, int64_t out, bool has_bias, bool is_affine) {
    units[name] = register_module(name, std::make_shared<NormedUnit>(in, out, has_bias, is_affine));
  }
};

Task normed_task(const std::shared_ptr<NormedModel>& model) {
  Task task;
  task.module = model;
  task.predict = [model](const Batch& batch) {
    return Prediction{.terms = {}, .outputs = model->forward(batch["inputs"]), .targets = {}};
  };
  return task;
}

Batch images_of(at::ScalarType dtype) {
  at::manual_seed(9);
  Batch batch;
  batch.ids = at::arange(5);
  batch.fields.set("inputs", at::randn({5, 3, 8, 8}).to(dtype));
  return batch;
}

at::Tensor evaluated(const std::shared_ptr<NormedModel>& model, const Batch& batch) {
  const at::NoGradGuard no_grad;
  model->eval();
  return model->forward(batch["inputs"]);
}

double fold_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

TEST(Fold, leaves_the_outputs_and_the_names_of_all_tensors) {
  for (const auto& [dtype, most] : {std::pair(at::kFloat, 1e-5), std::pair(at::kDouble, 1e-12)}) {
    const auto model = std::make_shared<NormedModel>();
    model->to(dtype);
    const Batch batch = images_of(dtype);
    const at::Tensor before = evaluated(model, batch);
    const auto parameters = model->named_parameters().keys(),
               buffers = model->named_buffers().keys();
    const auto folded = fold_batch_norms(normed_task(model), batch);
    EXPECT_EQ(folded,
              (std::vector<std::string>{"plain.weight", "biased.weight", "not_affine.weight"}));
    const at::Tensor after = evaluated(model, batch);
    EXPECT_LT(fold_difference(after, before), most);
    EXPECT_FALSE(at::equal(after, before));  // it was computed in another way
    EXPECT_EQ(model->named_parameters().keys(), parameters);
    EXPECT_EQ(model->named_buffers().keys(), buffers);
  }
}

TEST(Fold, puts_the_norms_scale_into_the_weight_and_leaves_its_shift_alone_acting) {
  const auto model = std::make_shared<NormedModel>();
  model->to(at::kDouble);
  struct Values {
    at::Tensor weight, bias, scale, shift, mean, variance;
  };
  const auto copies = [&](const std::string& name) {
    const NormedUnit& unit = *model->units.at(name);
    const auto copy = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.detach().clone() : tensor;
    };
    return Values{copy(unit.weight), copy(unit.bias), copy(unit.scale),
                  copy(unit.shift),  copy(unit.mean), copy(unit.variance)};
  };
  const Values plain = copies("plain"), biased = copies("biased"), bare = copies("not_affine"),
               twice = copies("twice"), residual = copies("residual");
  (void)fold_batch_norms(normed_task(model), images_of(at::kDouble));
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a, b, 1e-12, 1e-12);
  };
  const auto factor_of = [](const Values& of) {
    const at::Tensor inverse = 1 / (of.variance + kNormEps).sqrt();
    return of.scale.defined() ? of.scale * inverse : inverse;
  };
  for (const auto& [name, old] : {std::pair("plain", plain), std::pair("biased", biased)}) {
    SCOPED_TRACE(name);
    const Values now = copies(name);
    const at::Tensor factor = factor_of(old);
    EXPECT_TRUE(near(now.weight, old.weight * factor.view({-1, 1, 1, 1})));
    if (old.bias.defined()) {
      EXPECT_TRUE(near(now.bias, old.bias * factor));
    }
    EXPECT_TRUE(near(now.shift, old.shift - old.mean * factor));
    EXPECT_TRUE(at::equal(now.scale, at::ones_like(now.scale)));
    EXPECT_TRUE(at::equal(now.mean, at::zeros_like(now.mean)));
    EXPECT_TRUE(near(now.variance + kNormEps, at::ones_like(now.variance)));
  }
  const Values now = copies("not_affine");  // a norm without a bias has its shift in the mean
  EXPECT_TRUE(near(now.weight, bare.weight * factor_of(bare).view({-1, 1, 1, 1})));
  EXPECT_TRUE(near(now.mean, bare.mean * factor_of(bare)));
  for (const auto& [name, old] : {std::pair("twice", twice), std::pair("residual", residual)}) {
    EXPECT_TRUE(at::equal(copies(name).weight, old.weight)) << name;
    EXPECT_TRUE(at::equal(copies(name).variance, old.variance)) << name;
  }
}

TEST(Fold, a_second_time_changes_nothing) {
  const auto model = std::make_shared<NormedModel>();
  model->to(at::kDouble);
  const Batch batch = images_of(at::kDouble);
  (void)fold_batch_norms(normed_task(model), batch);
  const at::Tensor once = evaluated(model, batch);
  EXPECT_EQ(fold_batch_norms(normed_task(model), batch).size(), 3u);
  EXPECT_LT(fold_difference(evaluated(model, batch), once), 1e-13);
}

TEST(Fold, leaves_a_norm_whose_scale_is_not_finite_and_the_models_mode) {
  const auto model = std::make_shared<NormedModel>();
  model->train();
  {
    const at::NoGradGuard no_grad;
    model->units.at("plain")->variance[1] = -1;
  }
  const auto folded = fold_batch_norms(normed_task(model), images_of(at::kFloat));
  EXPECT_EQ(folded, (std::vector<std::string>{"biased.weight", "not_affine.weight"}));
  EXPECT_TRUE(model->is_training());  // it was in eval mode for the forward alone
}

// A training may read what a prediction does not.
TEST(Fold, leaves_a_convolution_that_a_trainings_forward_reads_without_its_norm) {
  const auto model = std::make_shared<NormedModel>();
  Task task = normed_task(model);
  const auto phase = [](const auto& compute) {
    return PhaseSpec{.forward = [compute](const Batch& batch) {
      return Terms{{.name = "mean", .sum = compute(batch["inputs"]).mean()}};
    }};
  };
  task.phases = {
      phase([model](const at::Tensor& x) { return model->forward(x); }),
      phase([model](const at::Tensor& x) { return model->units.at("plain")->convolve(x); })};
  const Batch batch = images_of(at::kFloat);
  EXPECT_EQ(fold_batch_norms(task, batch, Forwards::training_too),
            (std::vector<std::string>{"biased.weight", "not_affine.weight"}));
  EXPECT_EQ(fold_batch_norms(task, batch).size(), 3u);
}

TEST(Fold, leaves_a_convolution_that_is_a_result_and_one_whose_rows_are_channels) {
  const auto model = std::make_shared<NormedModel>();
  const Batch batch = images_of(at::kFloat);
  Task task;
  task.module = model;
  task.predict = [model](const Batch& some) {
    const NormedUnit& unit = *model->units.at("plain");
    const at::Tensor inner = unit.convolve(some["inputs"]);
    const Term mean{.name = "mean", .sum = unit.normalise(inner).mean()};
    return Prediction{.terms = {mean}, .outputs = inner, .targets = {}};
  };
  EXPECT_EQ(fold_batch_norms(task, batch).size(), 0u);
  task.predict = [model](const Batch& some) {  // [4, 4, 8]: batch_norm takes dim 1 for channels
    const NormedUnit& unit = *model->units.at("plain");
    const at::Tensor one = some["inputs"].select(0, 0).slice(1, 0, 4);
    return Prediction{.terms = {}, .outputs = unit.normalise(unit.convolve(one)), .targets = {}};
  };
  EXPECT_EQ(fold_batch_norms(task, batch).size(), 0u);
}

TEST(Fold, takes_a_model_whose_rows_are_predicted_in_parts) {
  const auto model = std::make_shared<NormedModel>();
  Task task;
  task.module = model;
  task.predict_rows = [model](const Batch& batch) {
    return PredictionRows{
        .rows = batch.size(), .at_once = 2, .part = [=](int64_t begin, int64_t end) {
          const at::Tensor some = batch["inputs"].slice(0, begin, end);
          return Prediction{.terms = {}, .outputs = model->forward(some), .targets = {}};
        }};
  };
  EXPECT_EQ(fold_batch_norms(task, images_of(at::kFloat)).size(), 3u);
}

}  // namespace
}  // namespace tanren
