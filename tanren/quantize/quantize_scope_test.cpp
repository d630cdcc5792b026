#include "tanren/quantize/quantize_scope.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/ops/quantized_convolution.h"
#include "tanren/quantize/calibration.h"
#include "tanren/quantize/quantized_task.h"
#include "tanren/quantize/readers.h"
#include "tanren/quantize/replaced.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/nn/module.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tanren {
namespace {

using testing::error_of;

constexpr auto kLastChannels = at::MemoryFormat::ChannelsLast;

// A module of one parameter.
struct OneWeight : torch::nn::Module {
  explicit OneWeight(const at::Tensor& value)
      : original(value.clone()), weight(register_parameter("weight", value.clone())) {}
  at::Tensor original, weight;
};

struct Quantised {
  std::shared_ptr<OneWeight> module;
  QuantizedWeight weight;
  std::optional<InputScale> input;
  std::shared_ptr<QuantizedLayers> layers;

  Quantised(const at::Tensor& value, WeightReader reader, std::optional<InputScale> scale = {},
            int64_t group = 0)
      : module(std::make_shared<OneWeight>(value)),
        weight(quantize_weight(reader == WeightReader::projection ? value.t() : value, "w", group)),
        input(scale),
        layers(std::make_shared<QuantizedLayers>(
            *module, QuantizedParameters{{"weight", {weight, reader, scale}}})) {}

  at::Tensor run(const std::function<at::Tensor(const at::Tensor&)>& forward) const {
    const at::NoGradGuard no_grad;
    const QuantizeScope scope(layers);
    return forward(module->weight);
  }
  at::Tensor plain(const at::Tensor& x, const at::Tensor& bias,
                   at::ScalarType dtype = at::kFloat) const {
    return quantized_linear_plain(x, weight, bias, input, dtype);
  }
  int64_t answers() const { return layers->answers().at("weight"); }
};

bool is_all_nan(const at::Tensor& x) { return x.isnan().all().item<bool>(); }

TEST(QuantizedLayers, refuse_what_does_not_fit_before_anything_is_replaced) {
  OneWeight module(at::randn({6, 8}));
  const QuantizedWeight fits = quantize_weight(at::randn({6, 8}), "w");
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           QuantizedLayers(module, {{"weight", {fits}}, {"wieght", {fits}}});
                         }),
                         "wieght is no parameter of the model");
  const auto alone = [&](const QuantizedParameter& of) {
    return error_of<InputError>([&] { QuantizedLayers(module, {{"weight", of}}); });
  };
  TANREN_EXPECT_CONTAINS(alone({quantize_weight(at::randn({8, 6}), "w")}), "weight is a parameter");
  TANREN_EXPECT_CONTAINS(alone({fits, WeightReader::projection}), "of shape [6, 8]");
  TANREN_EXPECT_CONTAINS(alone({fits, WeightReader::convolution, InputScale{}}), "with 4 dims");
  TANREN_EXPECT_CONTAINS(alone({fits, WeightReader::embedding, InputScale{}}), "is a table");
  TANREN_EXPECT_CONTAINS(alone({fits, WeightReader::linear, InputScale{0, 3}}), "input scale 0");
  EXPECT_TRUE(at::equal(module.weight, module.original));
  EXPECT_TRUE(module.weight.requires_grad());

  OneWeight wide(at::randn({6, 8}, at::kDouble));
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           QuantizedLayers(wide, {{"weight", {fits}}});
                         }),
                         "weight is Double");
  OneWeight oblong(at::randn({6, 8, 3, 1}));
  const QuantizedParameter kernel{quantize_weight(oblong.original, "w"), WeightReader::convolution,
                                  InputScale{}};
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           QuantizedLayers(oblong, {{"weight", kernel}});
                         }),
                         "square kernel");
}

TEST(QuantizedLayers, free_the_numbers_and_leave_nan_of_the_same_shape) {
  const Quantised of(at::randn({64, 32}), WeightReader::linear);
  const at::Tensor& weight = of.module->weight;
  EXPECT_EQ(weight.sizes(), at::IntArrayRef({64, 32}));
  EXPECT_EQ(weight.storage().nbytes(), 32 * sizeof(float));
  EXPECT_FALSE(weight.requires_grad());
  EXPECT_TRUE(is_all_nan(weight));
  EXPECT_TRUE(is_all_nan(at::linear(at::ones({3, 32}), weight))) << "outside of a scope";
}

TEST(QuantizedLayers, leave_no_numbers_in_views_that_the_module_took_before) {
  struct WithView : OneWeight {
    explicit WithView(const at::Tensor& value) : OneWeight(value), half(weight.narrow(0, 2, 2)) {}
    at::Tensor half;
  };
  const WithView module(at::randn({4, 8}));
  const QuantizedLayers layers(module, {{"weight", {quantize_weight(module.weight, "w")}}});
  EXPECT_TRUE(is_all_nan(at::linear(at::ones({3, 8}), module.half)));
  EXPECT_TRUE(is_all_nan(module.half));

  // If other tensors lie in the same buffer, only the parameter's own part becomes NaN.
  OneWeight part(at::randn({4, 8}));
  const at::Tensor buffer = at::ones({8, 8});
  part.weight.set_data(buffer.narrow(0, 2, 4));
  const QuantizedLayers of_part(part, {{"weight", {quantize_weight(part.weight, "w")}}});
  EXPECT_EQ(buffer.isnan().sum().item<int64_t>(), 4 * 8);
  EXPECT_TRUE(at::equal(buffer.narrow(0, 6, 2), at::ones({2, 8})));
}

TEST(QuantizeScope, answers_every_form_of_a_linear_with_the_8_bit_one_bit_by_bit) {
  at::manual_seed(1);
  // Square: only strides tell the weight from its transpose.
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{12, 12}, {7, 16}, {1, 1}}) {
    const int64_t out = sizes[0], in = sizes[1];
    const at::Tensor x = at::randn({5, in}), bias = at::randn({out}), value = at::randn({out, in});
    for (const std::optional<InputScale> input :
         {std::optional<InputScale>(), std::optional<InputScale>(InputScale{0.02F, 120})}) {
      const Quantised of(value, WeightReader::linear, input);
      const auto check = [&](const char* what, const at::Tensor& rows, const at::Tensor& added,
                             const std::function<at::Tensor(const at::Tensor&)>& forward) {
        EXPECT_TRUE(at::equal(of.run(forward), of.plain(rows, added)))
            << what << " of " << out << " × " << in << (input ? ", static" : ", dynamic");
      };
      check("linear", x, bias, [&](const auto& w) { return at::linear(x, w, bias); });
      check("linear without bias", x, {}, [&](const auto& w) { return at::linear(x, w); });
      const at::Tensor more = at::randn({2, 3, in}).transpose(0, 1);
      check("linear of strided rows", more, bias,
            [&](const auto& w) { return at::linear(more, w, bias); });
      check("addmm", x, bias, [&](const auto& w) { return at::addmm(bias, x, w.t()); });
      check("matmul", more, {}, [&](const auto& w) { return at::matmul(more, w.t()); });
      check("matmul of one row", x[0], {}, [&](const auto& w) { return at::matmul(x[0], w.t()); });
      EXPECT_EQ(of.answers(), 6);
    }
  }
}

TEST(QuantizeScope, answers_projections_whose_weight_is_transposed) {
  at::manual_seed(2);
  for (const int64_t out : {9, 16}) {
    const at::Tensor x = at::randn({5, 16}), bias = at::randn({out});
    const Quantised of(at::randn({16, out}), WeightReader::projection);
    const auto addmm = of.run([&](const auto& w) { return at::addmm(bias, x, w); });
    EXPECT_TRUE(at::equal(addmm, of.plain(x, bias)));
    EXPECT_TRUE(
        at::equal(of.run([&](const auto& w) { return at::matmul(x, w); }), of.plain(x, {})));
    const auto turned = of.run([&](const auto& w) { return at::linear(x, w.t(), bias); });
    EXPECT_TRUE(at::equal(turned, of.plain(x, bias)));
  }
}

TEST(QuantizeScope, answers_an_embedding_and_a_tied_head_from_the_same_bytes) {
  at::manual_seed(3);
  const at::Tensor ids = at::randint(70, {4, 6}, at::kLong), x = at::randn({3, 16});
  for (const auto reader : {WeightReader::embedding, WeightReader::linear}) {
    const Quantised of(at::randn({70, 16}), reader);
    const auto rows = of.run([&](const auto& w) { return at::embedding(w, ids, /*padding=*/0); });
    EXPECT_TRUE(at::equal(rows, at::embedding(expand(of.weight, at::kFloat), ids)));
    const auto scores = [&] { return of.run([&](const auto& w) { return at::linear(x, w); }); };
    if (reader == WeightReader::linear) {
      EXPECT_TRUE(at::equal(scores(), of.plain(x, {})));
    } else {
      TANREN_EXPECT_CONTAINS(error_of<Error>([&] { (void)scores(); }), "weight is read by linear");
    }
  }
}

TEST(QuantizeScope, names_the_weight_of_a_reader_that_nobody_foresaw_or_gives_it_nan) {
  const Quantised of(at::randn({8, 8}), WeightReader::linear);
  const at::Tensor x = at::ones({4, 8});
  using Reader = std::pair<const char*, std::function<at::Tensor(const at::Tensor&)>>;
  const std::vector<Reader> heard = {
      {"projection", [&](const auto& w) { return at::addmm(at::zeros({8}), x, w); }},
      {"an addmm that scales",
       [&](const auto& w) { return at::addmm(at::zeros({8}), x, w.t(), 1, 2); }},
      {"a linear with a part of it",
       [&](const auto& w) { return at::linear(x, w.narrow(0, 0, 4)); }},
      {"matmul as its left factor", [&](const auto& w) { return at::matmul(w, x.t()); }},
      {"an operator that adds it", [&](const auto& w) { return at::linear(x, at::eye(8), w[0]); }},
      {"an operator that adds it", [&](const auto& w) { return at::addmm(w, x, at::eye(8)); }}};
  for (const auto& [what, forward] : heard) {
    TANREN_EXPECT_CONTAINS(error_of<Error>([&, &forward = forward] { (void)of.run(forward); }),
                           std::string("[quantize] weight is read by ") + what);
  }
  const std::vector<Reader> others = {
      {"mm", [&](const auto& w) { return at::mm(x, w.t()); }},
      {"copy", [&](const auto& w) { return at::linear(x, w.contiguous()); }}};
  for (const auto& [what, forward] : others) EXPECT_TRUE(is_all_nan(of.run(forward))) << what;
  EXPECT_EQ(of.answers(), 0);
}

// The scheme "weights" gives the layer with the expanded weight, up to the order of its sums.
TEST(QuantizeScope, expands_a_weight_whose_input_stays_floating) {
  at::manual_seed(31);
  for (const auto& [out, in] : {std::pair<int64_t, int64_t>{10, 16}, {700, 1024}}) {
    const at::Tensor value = at::randn({out, in}), bias = at::randn({out});
    const at::Tensor x = at::randn({2, 3, in});
    for (const auto reader : {WeightReader::linear, WeightReader::projection}) {
      const auto module = std::make_shared<OneWeight>(
          reader == WeightReader::linear ? value : value.t().contiguous());
      const QuantizedWeight weight = quantize_weight(value, "w");
      QuantizedParameter parameter{weight, reader};
      parameter.is_weight_alone = true;
      const auto layers =
          std::make_shared<QuantizedLayers>(*module, QuantizedParameters{{"weight", parameter}});
      const QuantizeScope scope(layers);
      const at::Tensor& w = module->weight;
      const at::Tensor got =
          reader == WeightReader::linear ? at::linear(x, w, bias) : at::matmul(x, w) + bias;
      const at::Tensor expected = at::linear(
          x.to(at::kDouble), expand(weight, at::kFloat).to(at::kDouble), bias.to(at::kDouble));
      EXPECT_EQ(got.sizes(), expected.sizes());
      EXPECT_LT(((got - expected).norm() / expected.norm()).item<double>(), 1e-6) << out;
    }
  }
}

TEST(QuantizeScope, answers_in_the_dtype_of_the_operator) {
  at::manual_seed(4);
  const at::Tensor x = at::randn({5, 16}), bias = at::randn({6}), value = at::randn({6, 16});
  const at::Tensor ids = at::tensor({int64_t{5}, int64_t{0}});
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const Quantised of(value, WeightReader::linear);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    const auto off = c10::make_scope_exit([] {
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    });
    const at::Tensor y = of.run([&](const auto& w) { return at::linear(x, w, bias); });
    EXPECT_EQ(y.scalar_type(), dtype);
    const auto exact = dtype == at::kHalf ? at::kFloat : dtype;
    EXPECT_TRUE(at::equal(y, of.plain(x, bias, exact).to(dtype)));
    const at::Tensor rows = of.run([&](const auto& w) { return at::embedding(w, ids); });
    EXPECT_EQ(rows.scalar_type(), at::kFloat) << "autocast leaves embeddings alone";
  }
  const Quantised narrow(value.to(at::kBFloat16), WeightReader::linear);
  const at::Tensor y = narrow.run(
      [&](const auto& w) { return at::linear(x.to(at::kBFloat16), w, bias.to(at::kBFloat16)); });
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(
      at::equal(y, narrow.plain(x.to(at::kBFloat16), bias.to(at::kBFloat16), at::kBFloat16)));
}

TEST(QuantizeScope, answers_a_static_convolution_with_the_8_bit_one) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({2, 8, 7, 7}), bias = at::randn({6});
  for (const int64_t kernel : {3, 1}) {
    const Quantised of(at::randn({6, 8, kernel, kernel}), WeightReader::convolution,
                       InputScale{0.03F, 110});
    const auto convolved = [&](const at::Tensor& images) {
      return of.run([&](const auto& w) { return at::conv2d(images, w, bias, 2, kernel / 2); });
    };
    const at::Tensor expected =
        quantized_convolution_plain(x, of.weight, *of.input, 2, kernel / 2, bias, at::kFloat);
    const at::Tensor y = convolved(x), last = convolved(x.contiguous(kLastChannels));
    if (has_onednn_convolution()) {
      EXPECT_TRUE(at::allclose(y, expected, 1e-5, 1e-5));
    } else {
      EXPECT_TRUE(at::equal(y, expected));
    }
    EXPECT_TRUE(at::equal(last, y));
    EXPECT_TRUE(y.is_contiguous()) << "as conv2d: a view() that follows would need it";
    EXPECT_TRUE(last.is_contiguous(kLastChannels));
    EXPECT_EQ(of.answers(), 2);
    const auto otherwise = [&](const auto& w) { return at::conv2d(x, w, bias, 1, kernel / 2); };
    TANREN_EXPECT_CONTAINS(error_of<Error>([&] { (void)of.run(otherwise); }),
                           "weight is read by convolutions with two strides or paddings");
    const auto dilated = [&](const auto& w) { return at::conv2d(x, w, bias, 2, kernel - 1, 2); };
    TANREN_EXPECT_CONTAINS(error_of<Error>([&] { (void)of.run(dilated); }), "weight is read by");
  }
}

TEST(QuantizeScope, knows_the_shapes_in_a_dry_run_and_keeps_nothing_of_it) {
  at::manual_seed(12);
  const at::Tensor x = at::randn({2, 8, 7, 7});
  const Quantised convolution(at::randn({6, 8, 3, 3}), WeightReader::convolution,
                              InputScale{0.03F, 110});
  const Quantised linear(at::randn({9, 7}), WeightReader::linear);
  const auto forward = [&](const at::Tensor& images) {
    const at::Tensor y =
        convolution.run([&](const auto& w) { return at::conv2d(images, w, {}, 1, 1); });
    return linear.run([&](const auto& w) { return at::linear(y, w); });
  };
  {
    const DryScope dry;
    const at::Tensor y = forward(at::empty({5, 8, 7, 7}));
    EXPECT_TRUE(is_dry(y));
    EXPECT_EQ(y.sizes(), at::IntArrayRef({5, 6, 7, 9}));
  }
  const at::Tensor y =
      quantized_convolution_plain(x, convolution.weight, *convolution.input, 1, 1, {}, at::kFloat);
  EXPECT_TRUE(at::allclose(forward(x), linear.plain(y, {}), 0.05, 0.05));
}

TEST(QuantizeScope, expands_the_weight_of_a_convolution_without_an_input_scale) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({2, 8, 7, 7});
  const Quantised of(at::randn({6, 8, 3, 3}), WeightReader::convolution);
  const at::Tensor y = of.run([&](const auto& w) { return at::conv2d(x, w, {}, 1, 1); });
  EXPECT_TRUE(at::equal(y, at::conv2d(x, expand(of.weight, at::kFloat), {}, 1, 1)));
  EXPECT_EQ(of.answers(), 1);
}

TEST(QuantizeScope, keeps_its_answers_when_the_module_is_laid_channels_last_or_moved) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({2, 8, 7, 7});
  const Quantised of(at::randn({6, 8, 3, 3}), WeightReader::convolution, InputScale{0.03F, 110});
  const auto forward = [&](const auto& w) { return at::conv2d(x, w, {}, 1, 1); };
  const at::Tensor before = of.run(forward);
  at::Tensor weight = of.module->weight;
  ASSERT_TRUE(is_replaced(weight));
  lay_replaced_channels_last(weight);
  of.module->to(at::kCPU);
  EXPECT_EQ(weight.storage().nbytes(), 8 * 9 * sizeof(float));
  const at::Tensor after = of.run(forward);
  EXPECT_TRUE(at::equal(after, before));
  EXPECT_TRUE(after.is_contiguous(kLastChannels)) << "as with a channels-last weight";
}

TEST(QuantizeScope, knows_a_replaced_parameter_of_one_row) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({4, 20}), images = at::randn({2, 8, 7, 7});
  const Quantised linear(at::randn({1, 20}), WeightReader::linear);
  const Quantised kernel(at::randn({1, 8, 3, 3}), WeightReader::convolution);
  EXPECT_FALSE(is_replaced(linear.module->original));
  lay_replaced_channels_last(kernel.module->weight);
  for (const Quantised* one : {&linear, &kernel}) {
    const at::Tensor weight = one->module->weight;
    EXPECT_TRUE(is_replaced(weight));
    TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { refuse_replaced(weight, "weight"); }),
                           "has an 8-bit weight already");
  }
  const at::Tensor y = linear.run([&](const auto& w) { return at::linear(x, w); });
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  const at::Tensor z = kernel.run([&](const auto& w) { return at::conv2d(images, w, {}, 1, 1); });
  EXPECT_TRUE(z.isfinite().all().item<bool>());
  EXPECT_EQ(linear.answers() + kernel.answers(), 2);
}

// Two linears.
struct SmallNet : torch::nn::Module {
  SmallNet()
      : first(register_parameter("first", at::randn({32, 20}))),
        second(register_parameter("second", at::randn({10, 32}))) {}
  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor y = at::linear(x, first).relu();
    return at::linear(y, second);
  }
  at::Tensor first, second;
};

Task small_task(const std::shared_ptr<SmallNet>& net) {
  Task task;
  task.module = net;
  PhaseSpec phase;
  phase.forward = [net](const Batch& batch) {
    return Terms{{"sum", net->forward(batch["inputs"]).sum()}};
  };
  task.phases.push_back(phase);
  task.predict = [net](const Batch& batch) {
    const at::Tensor y = net->forward(batch["inputs"]);
    return Prediction{{{"sum", y.sum()}}, y, batch["inputs"]};
  };
  task.predict_rows = [net](const Batch& batch) {
    const at::Tensor below = at::linear(batch["inputs"], net->first).relu();
    const auto part = [net, below](int64_t begin, int64_t end) {
      const at::Tensor y = at::linear(below.narrow(0, begin, end - begin), net->second);
      return Prediction{{{"sum", y.sum()}}, y, y};
    };
    return PredictionRows{below.size(0), 2, part};
  };
  task.generate = [net](const GenerateRequest& request) {
    const at::Tensor y = net->forward(at::ones({request.tokens, 20}));
    return std::vector<int64_t>(static_cast<size_t>(y.isnan().sum().item<int64_t>()), 1);
  };
  return task;
}

QuantizedParameters both_of(const SmallNet& net) {
  return {{"first", {quantize_weight(net.first, "first")}},
          {"second", {quantize_weight(net.second, "second")}}};
}

Batch inputs_of(const at::Tensor& x) {
  Batch batch;
  batch.fields.set("inputs", x);
  batch.ids = at::arange(x.size(0));
  return batch;
}

TEST(QuantizedTask, runs_every_entry_in_a_scope_and_leaves_none_open) {
  at::manual_seed(8);
  const auto net = std::make_shared<SmallNet>();
  const QuantizedParameters parameters = both_of(*net);
  const at::Tensor x = at::randn({5, 20});
  const at::Tensor middle =
      quantized_linear_plain(x, parameters.at("first").weight, {}, {}, at::kFloat).relu();
  const at::Tensor expected =
      quantized_linear_plain(middle, parameters.at("second").weight, {}, {}, at::kFloat);
  const Task plain = small_task(net), task = quantized(plain, parameters);
  const Batch batch = inputs_of(x);
  EXPECT_TRUE(at::equal(task.predict(batch).outputs, expected));
  EXPECT_TRUE(at::equal(task.phases[0].forward(batch)[0].sum, expected.sum()));
  const PredictionRows rows = task.predict_rows(batch);
  EXPECT_TRUE(at::equal(at::cat({rows.part(0, 2).outputs, rows.part(2, 5).outputs}), expected));
  EXPECT_EQ(task.generate({.prompt = {1}, .tokens = 3}).size(), 0u);
  EXPECT_EQ(OperatorListenerScope::current(), nullptr);
  EXPECT_TRUE(is_all_nan(plain.predict(batch).outputs)) << "outside of the scope";
}

TEST(QuantizedTask, without_parameters_is_the_task_bit_by_bit) {
  at::manual_seed(9);
  const auto net = std::make_shared<SmallNet>();
  const Batch batch = inputs_of(at::randn({5, 20}));
  const Task plain = small_task(net);
  const at::Tensor before = plain.predict(batch).outputs;
  EXPECT_TRUE(at::equal(quantized(plain, {}).predict(batch).outputs, before));
  EXPECT_TRUE(net->first.requires_grad());
}

TEST(QuantizedTask, refuses_a_second_quantisation_of_a_parameter) {
  at::manual_seed(32);
  const auto net = std::make_shared<SmallNet>();
  const QuantizedParameters parameters = both_of(*net);
  const at::Tensor weight = net->first.detach().clone();
  const Task once = quantized(small_task(net), {{"first", parameters.at("first")}});
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { quantized(once, parameters); }),
                         "first has an 8-bit weight already");
  EXPECT_FALSE(is_replaced(net->second)) << "before anything is replaced";
  const Batch batch = inputs_of(at::ones({2, 20}));
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { (void)find_readers(once, batch); }),
                         "first has an 8-bit weight already");
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           (void)quantized_parameters(*net, {{"first", WeightReader::linear}},
                                                      QuantizeScheme::dynamic);
                         }),
                         "first has an 8-bit weight already");
  // The parameter has its numbers again, but the first task still has its 8-bit weight.
  net->first.set_data(weight);
  const Task twice = quantized(once, parameters);
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] { (void)twice.predict(batch); }),
                         "first has an 8-bit weight already");
}

TEST(QuantizedTask, may_be_quantised_in_parts) {
  at::manual_seed(33);
  const auto net = std::make_shared<SmallNet>(), again = std::make_shared<SmallNet>();
  const QuantizedParameters parameters = both_of(*net);
  const Task first = quantized(small_task(net), {{"first", parameters.at("first")}});
  const Task parts = quantized(first, {{"second", parameters.at("second")}});
  const Task whole = quantized(small_task(again), parameters);
  const Batch batch = inputs_of(at::randn({5, 20}));
  const at::Tensor y = parts.predict(batch).outputs;
  EXPECT_TRUE(at::equal(y, whole.predict(batch).outputs));
  EXPECT_FALSE(is_all_nan(y));
}

TEST(QuantizedTask, has_no_gradients_and_a_backward_says_so) {
  const auto net = std::make_shared<SmallNet>();
  const QuantizedParameters parameters = both_of(*net);
  const Task task = quantized(small_task(net), {{"first", parameters.at("first")}});
  const Terms terms = task.phases[0].forward(inputs_of(at::randn({5, 20})));
  EXPECT_FALSE(net->second.requires_grad()) << "it would leave out what is below 8 bits";
  EXPECT_THROW(terms[0].sum.backward(), c10::Error);
}

TEST(QuantizedLayers, refuse_two_readers_of_one_parameter) {
  struct Tied : torch::nn::Module {
    Tied() {
      register_parameter("a", at::randn({6, 8}));
      register_parameter("b", parameters()[0]);
    }
  };
  const Tied module;
  const QuantizedWeight weight = quantize_weight(module.parameters()[0], "a");
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           QuantizedLayers(module, {{"a", {weight, WeightReader::linear}},
                                                    {"b", {weight, WeightReader::embedding}}});
                         }),
                         "a and b are one parameter, read by linear and embedding");
}

TEST(QuantizedLayers, say_that_numbers_are_gone_if_they_are_interrupted) {
  const auto net = std::make_shared<SmallNet>();
  QuantizedParameters parameters = both_of(*net);
  parameters.at("first").weight.sums = at::Tensor();
  EXPECT_THROW(QuantizedLayers(*net, parameters), c10::Error);
  EXPECT_FALSE(is_replaced(net->first)) << "nothing is gone yet";
  parameters = both_of(*net);
  parameters.at("second").weight.sums = at::Tensor();
  TANREN_EXPECT_CONTAINS(error_of<RunError>([&] { QuantizedLayers(*net, parameters); }),
                         "second could not become 8-bit after 1 of 2 weights");
}

TEST(QuantizedTask, gives_a_row_the_same_numbers_beside_any_others) {
  at::manual_seed(10);
  const auto net = std::make_shared<SmallNet>();
  const Task task = quantized(small_task(net), both_of(*net));
  const at::Tensor x = at::randn({70, 20}) * at::logspace(-3, 3, 70).unsqueeze(1);
  const at::Tensor whole = task.predict(inputs_of(x)).outputs;
  for (const int64_t i : {0, 1, 40, 69}) {
    const at::Tensor alone = task.predict(inputs_of(x.narrow(0, i, 1))).outputs;
    EXPECT_TRUE(at::equal(alone[0], whole[i])) << i;
  }
}

TEST(QuantizedTask, predicts_on_several_threads_at_once) {
  at::manual_seed(11);
  const at::Tensor x = at::randn({3, 8, 9, 9});
  const Quantised of(at::randn({6, 8, 3, 3}), WeightReader::convolution, InputScale{0.03F, 110});
  const at::Tensor expected =
      quantized_convolution_plain(x, of.weight, *of.input, 1, 1, {}, at::kFloat);
  // The first call of each prepares the same convolution.
  std::vector<at::Tensor> results(4);
  std::vector<std::thread> threads;
  for (at::Tensor& result : results) {
    threads.emplace_back([&result, &of, &x] {
      for (int i = 0; i < 5; ++i) {
        result = of.run([&](const auto& w) { return at::conv2d(x, w, {}, 1, 1); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& result : results) {
    EXPECT_TRUE(at::allclose(result, expected, 1e-5, 1e-5));
  }
  EXPECT_EQ(of.answers(), 20);
}

}  // namespace
}  // namespace tanren
