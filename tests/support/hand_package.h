// Packages of the hand-written graph (hand_graph.cpp), as tanren_export.py would write them, and
// the same model as a module of torch. For tests that define TANREN_HAND_GRAPH.
#pragma once

#include "tanren/base/file.h"
#include "tanren/base/hash.h"
#include "tanren/base/json_text.h"
#include "tanren/base/task.h"
#include "tanren/formats/safetensors.h"
#include "tests/support/hand_model.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/version.h>

#include <sys/utsname.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace tanren::testing {

struct HandPackage {
  // "norm", "half", "half_norm", "odd": which model the graph computes.
  std::string name = "plain";
  std::string precision = "fp64";
  bool has_norm() const { return name.ends_with("norm"); }
  at::ScalarType dtype() const { return precision == "fp64" ? at::kDouble : at::kFloat; }
};

// The package's weights and buffers, which depend on `options` alone.
inline TensorMap hand_values(const HandPackage& options) {
  const auto waves = [&](at::IntArrayRef sizes, double phase) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return (at::arange(count, at::kDouble) * 1.7 + phase)
        .sin()
        .mul(0.4)
        .reshape(sizes)
        .to(options.dtype());
  };
  TensorMap values;
  values.set("embedding.weight", waves({kHandVocab, kHandWidth}, 0.1));
  values.set("unused.weight", waves({3}, 0.2));
  values.set("hidden.weight", waves({kHandWidth, kHandWidth}, 0.3));
  values.set("hidden.bias", waves({kHandWidth}, 0.4));
  if (!options.has_norm()) return values;
  values.set("norm.weight", at::ones({kHandWidth}, options.dtype()));
  values.set("norm.bias", at::zeros({kHandWidth}, options.dtype()));
  values.set("norm.running_mean", at::zeros({kHandWidth}, options.dtype()));
  values.set("norm.running_var", at::ones({kHandWidth}, options.dtype()));
  values.set("norm.num_batches_tracked", at::zeros({}, at::kLong));
  return values;
}

inline nlohmann::json hand_manifest(const HandPackage& options,
                                    const std::filesystem::path& folder) {
  using Json = nlohmann::json;
  utsname host{};
  ::uname(&host);
  const int64_t gradients = options.has_norm() ? 5 : 2;  // output of the first
  const std::string dtype = options.dtype() == at::kDouble ? "float64" : "float32";
  const auto parameter = [&](const char* name, Json sizes, Json gradient) {
    return Json{{"name", name},
                {"dtype", dtype},
                {"sizes", std::move(sizes)},
                {"gradient", std::move(gradient)},
                {"frozen", false}};
  };
  const auto buffer = [](const char* name, const std::string& type, Json sizes, int64_t output) {
    return Json{{"name", name}, {"dtype", type}, {"sizes", std::move(sizes)}, {"output", output}};
  };
  const auto field = [](const char* name, Json ignored) {
    return Json{{"name", name},
                {"dtype", "int64"},
                {"sizes", {"batch", "tokens"}},
                {"values", {0, kHandVocab - 1}},
                {"ignored", std::move(ignored)}};
  };
  Json manifest = {
      {"format", "tanren.package"},
      {"version", 1},
      {"torch", std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR) +
                    "." + std::to_string(TORCH_VERSION_PATCH)},
      {"device", "cpu"},
      {"machine", host.machine},
      {"processor_flags", Json::array()},
      {"precision", options.precision},
      {"class", "HandModel"},
      {"multiply_adds", 0},
      {"draws", ""},
      {"couples_samples", options.has_norm()},
      {"sizes",
       {{"batch", {{"min", 1}, {"max", 64}, {"multiple", 1}}},
        {"tokens", {{"min", 2}, {"max", 12}, {"multiple", 2}}}}},
      {"parameters",
       {parameter("embedding.weight", {kHandVocab, kHandWidth}, gradients),
        parameter("unused.weight", Json::array({3}), nullptr),
        parameter("hidden.weight", {kHandWidth, kHandWidth}, gradients + 1),
        parameter("hidden.bias", Json::array({kHandWidth}), gradients + 2)}},
      {"tied", {{"head.weight", "embedding.weight"}}},
      {"buffers", Json::array()},
      {"fields", {field("inputs", nullptr), field("labels", -100)}},
      {"terms",
       {{{"name", "cross_entropy"}, {"weight", 1.0}, {"count", "tokens"}},
        {{"name", "activity"}, {"weight", kHandActivity}, {"count", "samples"}}}},
      {"outputs", options.has_norm() ? 10 : 5},
      {"targets", "labels"},
      {"metrics", Json::array({"classes"})},
      {"classes", kHandVocab}};
  if (options.has_norm()) {
    const Json width = Json::array({kHandWidth});
    manifest["parameters"].push_back(parameter("norm.weight", width, gradients + 3));
    manifest["parameters"].push_back(parameter("norm.bias", width, gradients + 4));
    manifest["buffers"] = {buffer("norm.running_mean", dtype, width, 2),
                           buffer("norm.running_var", dtype, width, 3),
                           buffer("norm.num_batches_tracked", "int64", Json::array(), 4)};
  }
  for (const char* file : {"train.so", "predict.so"}) {
    manifest["files"][file] = hash_text(content_hash(read_file(folder / file)));
  }
  return manifest;
}

inline void write_manifest(const std::filesystem::path& folder, const nlohmann::json& manifest) {
  write_file(folder / "manifest.json", exact_json_text(manifest, 1));
}

// Writes the package into `parent`; its folder.
inline std::filesystem::path write_hand_package(const std::filesystem::path& parent,
                                                const HandPackage& options = {}) {
  const auto folder = parent / (options.name + ".package");
  std::filesystem::create_directories(folder);
  for (const char* file : {"train.so", "predict.so"}) {
    std::filesystem::copy_file(TANREN_HAND_GRAPH, folder / file);
  }
  write_safetensors(folder / "weights.safetensors", hand_values(options), {{"format", "pt"}});
  write_manifest(folder, hand_manifest(options, folder));
  return folder;
}

// The same model and weights, computed by torch and its autograd, operator by operator.
struct HandModule : torch::nn::Module {
  explicit HandModule(const HandPackage& options)
      : torch::nn::Module("HandModule"), hidden(options.dtype()) {
    const TensorMap values = hand_values(options);
    const auto own = [&](const char* name) {
      return register_module(name, std::make_shared<torch::nn::Module>("Part"));
    };
    const auto embedding = own("embedding"), unused = own("unused"), layer = own("hidden");
    const auto parameter = [&](torch::nn::Module& part, const std::string& name) {
      return part.register_parameter(name.substr(name.rfind('.') + 1), values.at(name));
    };
    weights.embedding = parameter(*embedding, "embedding.weight");
    parameter(*unused, "unused.weight");
    weights.weight = parameter(*layer, "hidden.weight");
    weights.bias = parameter(*layer, "hidden.bias");
    if (options.has_norm()) add_norm(*own("norm"), values);
    own("head")->register_parameter("weight", weights.embedding);
  }

  void add_norm(torch::nn::Module& norm, const TensorMap& values) {
    weights.scale = norm.register_parameter("weight", values.at("norm.weight"));
    weights.shift = norm.register_parameter("bias", values.at("norm.bias"));
    const auto buffer = [&](const char* name) {
      return norm.register_buffer(name, values.at(std::string("norm.") + name));
    };
    statistics = {buffer("running_mean"), buffer("running_var"), buffer("num_batches_tracked")};
  }

  Terms terms(const HandResult& result) const {
    return {{"cross_entropy", result.cross_entropy, "tokens"},
            {"activity", result.activity, "samples"}};
  }
  HandResult forward(const Batch& batch, bool trains) {
    return hand_forward(weights, statistics, batch["inputs"], batch["labels"], trains, hidden);
  }

  HandWeights weights;
  HandStatistics statistics;
  at::ScalarType hidden;
};

inline Task hand_task(const HandPackage& options) {
  const auto module = std::make_shared<HandModule>(options);
  Task task{.module = module};
  task.facts.couples_samples = options.has_norm();
  PhaseSpec& phase = task.phases.emplace_back();
  phase.forward = [module](const Batch& batch) {
    return module->terms(module->forward(batch, /*trains=*/true));
  };
  phase.objectives.front().terms = {{"cross_entropy"}, {"activity", kHandActivity}};
  task.predict = [module](const Batch& batch) {
    const HandResult result = module->forward(batch, /*trains=*/false);
    return Prediction{module->terms(result), result.scores.transpose(1, 2), batch["labels"]};
  };
  task.classes = kHandVocab;
  return task;
}

}  // namespace tanren::testing
