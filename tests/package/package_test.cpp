// Packages as tasks: what they compute, what they refuse, and what a failure leaves. Issue 30.
#include "tests/support/hand_package.h"
#include "tests/support/token_data.h"

#include "tanren/base/error.h"
#include "tanren/base/loss_seeds.h"
#include "tanren/base/testing.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/interop/model_description.h"
#include "tanren/model/compiled_graph.h"
#include "tanren/model/package.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <sys/sysmacros.h>

#include <functional>
#include <optional>
#include <sstream>

namespace tanren::testing {
namespace {

class PackageTask : public ::testing::Test {
 protected:
  std::filesystem::path write(const HandPackage& options = {}) {
    return write_hand_package(folder_.path(), options);
  }
  // Returns the error for a package after `change` has modified its manifest.
  std::string refusal(const std::function<void(nlohmann::json&)>& change) {
    const auto package = folder_.path() / "plain.package";
    if (!std::filesystem::exists(package)) write();
    nlohmann::json manifest = hand_manifest({}, package);
    change(manifest);
    write_manifest(package, manifest);
    return error_of<ConfigError>([&] { package_task(package); });
  }
  static Batch batch() { return TokenData(38).collate({0, 1, 2, 3, 4}).batch; }

  TemporaryFolder folder_;
};

LossSeeds seeds_of_both(double cross_entropy, double activity) {
  return LossSeeds([=](const std::string& term, const std::string&) -> std::optional<double> {
    return term == "activity" ? activity : cross_entropy;
  });
}

// Runs a forward and a backward as a training step does.
void train_once(const Task& task, const Batch& batch, LossSeeds& seeds) {
  const LossSeedsScope scope(&seeds);
  std::vector<at::Tensor> roots, begins;
  for (const Term& term : task.phases[0].forward(batch)) {
    roots.push_back(term.sum);
    begins.push_back(
        seeds.of(term.name, term.count_name, term.sum.scalar_type(), term.sum.device()));
  }
  torch::autograd::backward(roots, begins);
}

at::Tensor gradient_of(const Task& task, const std::string& name) {
  return task.module->named_parameters()[name].grad();
}

TEST_F(PackageTask, computes_what_its_module_computes_with_each_terms_seed) {
  const HandPackage options{.name = "norm"};
  const Task package = package_task(write(options)), module = hand_task(options);
  for (const Task* task : {&package, &module}) {
    LossSeeds seeds = seeds_of_both(1.0 / 13, 0.002);
    train_once(*task, batch(), seeds);
  }
  EXPECT_EQ(package.module->named_parameters().keys(), module.module->named_parameters().keys());
  for (const auto& item : module.module->named_parameters()) {
    const at::Tensor gradient = gradient_of(package, item.key());
    ASSERT_EQ(gradient.defined(), item.value().grad().defined()) << item.key();
    if (!gradient.defined()) continue;
    EXPECT_LT((gradient - item.value().grad()).norm().item<double>(), 1e-13) << item.key();
  }
  EXPECT_FALSE(gradient_of(package, "unused.weight").defined());
  const auto buffers = module.module->named_buffers();
  for (const auto& item : package.module->named_buffers()) {
    EXPECT_TRUE(at::equal(item.value(), buffers[item.key()])) << item.key();
  }
  EXPECT_EQ(buffers["norm.num_batches_tracked"].item<int64_t>(), 1);
  const at::NoGradGuard no_grad;
  const Prediction got = package.predict(batch()), expected = module.predict(batch());
  EXPECT_LT((got.outputs - expected.outputs).norm().item<double>(), 1e-12);
  EXPECT_TRUE(at::equal(got.targets, expected.targets));
}

TEST_F(PackageTask, has_the_facts_of_its_manifest) {
  const TaskFacts facts = package_task(write({.name = "norm"})).facts;
  EXPECT_EQ(facts.couples_samples, true);
  EXPECT_EQ(facts.torch_dropout, "");
  EXPECT_FALSE(facts.runs_dry);
  ASSERT_TRUE(facts.graph);
  EXPECT_EQ(facts.graph->sizes, "batch 1 to 64, tokens 2 to 12 in multiples of 2");
  EXPECT_EQ(facts.graph->changed.size(), 3u);
  EXPECT_EQ(facts.graph->checksum.size(), 16u);
}

// With a seed of 1 the gradient within the graph would be below fp16's smallest number.
TEST_F(PackageTask, gets_a_gradient_that_fp16_would_flush) {
  const Task half = package_task(write({.name = "half", .precision = "fp16"}));
  const Task exact = hand_task({});
  for (const Task* task : {&half, &exact}) {
    LossSeeds seeds = seeds_of_both(1e-9 * 0x1p24, 0);
    train_once(*task, batch(), seeds);
  }
  const at::Tensor got = gradient_of(half, "hidden.weight").to(at::kDouble);
  const at::Tensor expected = gradient_of(exact, "hidden.weight");
  EXPECT_LT((got - expected).norm().item<double>(), 0.02 * expected.norm().item<double>());
}

TEST_F(PackageTask, serves_one_backward_with_the_seeds_of_its_forward) {
  const Task task = package_task(write());
  LossSeeds seeds = seeds_of_both(1, 1), others = seeds_of_both(1, 1);
  Terms terms;
  {
    const LossSeedsScope scope(&seeds);
    terms = task.phases[0].forward(batch());
  }
  const auto backward = [&](LossSeeds& with) {
    std::vector<at::Tensor> roots, begins;
    for (const Term& term : terms) {
      roots.push_back(term.sum);
      begins.push_back(with.of(term.name, term.count_name, at::kDouble, at::kCPU));
    }
    torch::autograd::backward(roots, begins, /*retain_graph=*/true);
  };
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] { backward(others); }), "other seeds");
  terms.clear();
  {
    const LossSeedsScope scope(&seeds);
    terms = task.phases[0].forward(batch());
  }
  backward(seeds);
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] { backward(seeds); }), "serve one backward");
  const Terms alone = task.phases[0].forward(batch());
  TANREN_EXPECT_CONTAINS(error_of<Error>([&] { alone[0].sum.backward(); }), "several terms");
}

TEST_F(PackageTask, leaves_its_buffers_when_a_call_fails) {
  const HandPackage options{.name = "norm"};
  const auto package = write(options);
  nlohmann::json manifest = hand_manifest(options, package);
  std::swap(manifest["parameters"][2]["gradient"], manifest["parameters"][3]["gradient"]);
  write_manifest(package, manifest);
  const Task task = package_task(package);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { task.phases[0].forward(batch()); }),
                         "hidden.weight wants float64 [8, 8]");
  const auto buffers = task.module->named_buffers();
  EXPECT_EQ(buffers["norm.num_batches_tracked"].item<int64_t>(), 0);
  EXPECT_EQ(buffers["norm.running_mean"].abs().sum().item<double>(), 0);
}

TEST_F(PackageTask, refuses_predictions_that_are_not_as_its_manifest_says) {
  const Task task = package_task(write({.name = "odd"}));
  const at::NoGradGuard no_grad;
  const auto predict = [&](const std::vector<int64_t>& samples) {
    return task.predict(TokenData(38).collate(samples).batch);
  };
  const auto refused = [&](const std::vector<int64_t>& samples) {
    return error_of<ConfigError>([&] { predict(samples); });
  };
  TANREN_EXPECT_CONTAINS(refused({0}),
                         "output 0 of predict.so is Float [] on cpu, and cross_entropy wants "
                         "float64 [] on cpu");
  TANREN_EXPECT_CONTAINS(refused({0, 1}),
                         "output 2 of predict.so is Double [46, 12] on cpu, and scores wants "
                         "float64 [2, 12] on cpu");
  TANREN_EXPECT_CONTAINS(refused({0, 1, 2}), "scores wants float64 [3, 23, 12] on cpu");
  EXPECT_EQ(predict({0, 1, 2, 3}).outputs.sizes(), (std::vector<int64_t>{4, 23, 12}));
}

// A run would write these texts beside its weights, and no reader of the weights would accept them.
TEST_F(PackageTask, refuses_at_once_what_no_file_of_weights_can_hold) {
  TANREN_EXPECT_CONTAINS(refusal([](nlohmann::json& m) { m["class"] = "a.Model"; }),
                         "class is no name of a class");
  const auto package = folder_.path() / "plain.package";
  nlohmann::json manifest = hand_manifest({}, package);
  manifest["class"] = "Größe";
  write_manifest(package, manifest);
  const Metadata metadata = describe_package({}, package_task(package).facts);
  EXPECT_EQ(package_note(metadata, "model.tanren.safetensors")->class_name, "Größe");
  write_file(package / "config.json", "{\"scale\": Infinity}");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { package_task(package); }),
                         "config.json is no object of JSON, which has neither Infinity nor NaN; "
                         "write a number that the model takes for each");
}

TEST_F(PackageTask, loads_no_code_in_a_dry_run) {
  const auto package = write();
  const DryScope dry(nullptr, /*real_bytes=*/64 << 10);  // as summaries of models have it
  EXPECT_THROW(package_task(package), NeedsValues);
}

TEST_F(PackageTask, refuses_what_another_machine_or_program_compiled) {
  using Json = nlohmann::json;
  TANREN_EXPECT_CONTAINS(refusal([](Json& m) { m["torch"] = "2.9.1"; }), "for libtorch 2.9.1");
  TANREN_EXPECT_CONTAINS(refusal([](Json& m) { m["machine"] = "vax"; }), "compiled for vax");
  TANREN_EXPECT_CONTAINS(refusal([](Json& m) { m["processor_flags"] = {"avx4096"}; }),
                         "processor lacks (avx4096)");
  TANREN_EXPECT_CONTAINS(refusal([](Json& m) { m["version"] = 2; }), "is of version 2");
  TANREN_EXPECT_CONTAINS(refusal([](Json& m) { m["metrics"] = {"acuracy"}; }), "accuracy");
}

TEST_F(PackageTask, refuses_files_that_are_not_those_of_its_manifest) {
  const auto package = write();
  const auto refused = [&] { return error_of<ConfigError>([&] { package_task(package); }); };
  write_file(package / "train.json", "{}");
  TANREN_EXPECT_CONTAINS(refused(), "train.json is not in the manifest");
  std::filesystem::remove(package / "train.json");
  TensorMap values = hand_values({});
  values.set("hidden.bias", at::zeros({9}, at::kDouble));
  write_safetensors(package / "weights.safetensors", values);
  TANREN_EXPECT_CONTAINS(refused(), "has hidden.bias as Double [9]");
  values.set("hidden.bias", at::zeros({8}, at::kDouble));
  values.set("more", at::zeros({1}));
  write_safetensors(package / "weights.safetensors", values);
  TANREN_EXPECT_CONTAINS(refused(), "has 5 tensors, and the manifest 4");
  write_file(package / "train.so", "no code");
  TANREN_EXPECT_CONTAINS(refused(), "the file was changed");
  std::filesystem::remove(package / "train.so");
  TANREN_EXPECT_CONTAINS(refused(), "train.so is missing");
  std::filesystem::remove(package / "manifest.json");
  TANREN_EXPECT_CONTAINS(refused(), "is no package");
}

TEST_F(PackageTask, tells_why_its_code_cannot_be_opened) {
  const auto package = write();
  write_file(package / "train.so", "no code");
  write_manifest(package, hand_manifest({}, package));
  const std::string text = error_of<ConfigError>([&] { package_task(package); });
  TANREN_EXPECT_CONTAINS(text, "train.so cannot be loaded");
  TANREN_EXPECT_CONTAINS(text, "too short");  // dlopen's words
}

// An export renames folders and writes no file in place.
TEST_F(PackageTask, goes_on_with_the_code_that_it_loaded_when_it_is_exported_anew) {
  const auto package = write();
  const Task task = package_task(package);
  const auto loss = [&] { return task.phases[0].forward(batch())[0].sum.item<double>(); };
  const double before = loss();
  const auto other = folder_.path() / "other", old = folder_.path() / "old";
  const auto exported = write_hand_package(other);
  std::filesystem::rename(package, old);
  std::filesystem::rename(exported, package);
  std::filesystem::remove_all(old);
  EXPECT_EQ(loss(), before);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { package_task(package); }),
                         "this process holds the older code");
}

TEST_F(PackageTask, is_refused_if_it_is_exchanged_while_it_is_loaded) {
  const auto package = write({.name = "exchanged"});
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { package_task(package); }),
                         "manifest.json was exchanged while its package was loaded");
}

// Graphs are loaded at their first call. Without this error, new code would train old weights.
TEST_F(PackageTask, for_an_accelerator_is_refused_if_it_is_exported_anew_before_its_first_call) {
  const auto package = write();
  nlohmann::json manifest = hand_manifest({}, package);
  manifest["device"] = "cuda";
  write_manifest(package, manifest);
  const Task task = package_task(package);
  manifest["multiply_adds"] = 1;
  write_manifest(package, manifest);
  const std::string line = "manifest.json was exchanged while its package was loaded; start again";
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { task.phases[0].forward(batch()); }), line);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { task.predict(batch()); }), line);
}

// Otherwise a run would fail after hours, at its first evaluation. The weights stay on the CPU
// here, where no graph for another device is called.
TEST_F(PackageTask, for_an_accelerator_tells_before_any_training_that_it_cannot_predict) {
  const auto package = write();
  nlohmann::json manifest = hand_manifest({}, package);
  manifest["device"] = "cuda";
  write_manifest(package, manifest);
  const Task task = package_task(package);
  const std::string text = error_of<ConfigError>([&] { task.phases[0].forward(batch()); });
  TANREN_EXPECT_CONTAINS(text, "predict.so");
}

TEST(CompiledGraph, is_told_from_another_mapped_file) {
  const std::string row = "7f00-7f01 r-xp 00000000 ";
  const auto is_mapped = [&](const std::string& rest) {
    std::istringstream maps(row + "00:00 0 \n" + row + rest + "\n" + row + "00:00 0 [heap]\n");
    return maps_have(maps, "/a/train.so", makedev(8, 17), 42);
  };
  EXPECT_TRUE(is_mapped("08:11 42                    /a/train.so"));
  EXPECT_TRUE(is_mapped("08:11 42                    /linked/elsewhere.so"));
  EXPECT_TRUE(is_mapped("00:1b 7                     /a/train.so")) << "a layered file system";
  EXPECT_TRUE(is_mapped("00:1b 42                    /below/a/train.so"));
  EXPECT_FALSE(is_mapped("00:1b 42                   /lib/libc.so.6")) << "of another disk";
  EXPECT_FALSE(is_mapped("08:11 43                   /a/train.so (deleted)"));
  EXPECT_FALSE(is_mapped("08:11 43                   /b/train.so"));
}

TEST_F(PackageTask, refuses_batches_that_its_graph_does_not_take) {
  const Task task = package_task(write());
  const auto refused = [&](const std::string& field, const at::Tensor& value) {
    Batch changed = batch();
    changed.fields.set(field, value);
    return error_of<DataError>([&] { task.phases[0].forward(changed); });
  };
  Batch without = batch();
  without.fields = {};
  without.fields.set("labels", at::zeros({5, 12}, at::kLong));
  TANREN_EXPECT_CONTAINS(error_of<DataError>([&] { task.phases[0].forward(without); }),
                         "wants the field inputs, and the data have labels alone");
  const auto zeros = [](at::IntArrayRef sizes) { return at::zeros(sizes, at::kLong); };
  TANREN_EXPECT_CONTAINS(refused("inputs", at::zeros({5, 12})), "wants int64 in the field inputs");
  TANREN_EXPECT_CONTAINS(refused("inputs", zeros({5})), "wants 2 dimensions");
  TANREN_EXPECT_CONTAINS(refused("inputs", zeros({5, 14})), "tokens 2 to 12 in multiples of 2");
  TANREN_EXPECT_CONTAINS(refused("inputs", zeros({5, 5})), "dim 1 of the field inputs has 5");
  TANREN_EXPECT_CONTAINS(refused("labels", zeros({5, 10})), "has 10 beside 12");
  // Compiled code would take -5 for the fifth class from the end. -100 is the label to ignore.
  TANREN_EXPECT_CONTAINS(refused("labels", zeros({5, 12}) - 5),
                         "in the field labels, and the batch has -5");
  Batch ignored = batch();
  ignored.fields.set("labels", zeros({5, 12}) - 100);
  EXPECT_NO_THROW(task.phases[0].forward(ignored));
  TANREN_EXPECT_CONTAINS(refused("inputs", zeros({65, 12})), "batch.microbatch");
  TANREN_EXPECT_CONTAINS(refused("inputs", zeros({5, 12}) + 23), "takes 0 to 22");
  TANREN_EXPECT_CONTAINS(refused("labels", zeros({5, 12}) - 1000), "the batch has -1000");
}

}  // namespace
}  // namespace tanren::testing
