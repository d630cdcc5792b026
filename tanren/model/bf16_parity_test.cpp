// bf16 against transformers' two implementations of attention (eager, sdpa): the distance to the
// nearer one must not exceed their distance to each other (tests/fixtures/make/bf16_fixture.py).
#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/registry.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tanren {
namespace {

SafetensorsFile bf16_fixture(const std::string& name) {
  return read_safetensors(TANREN_SOURCE_DIR "/tests/fixtures/" + name + ".safetensors");
}

struct Bf16Case {
  const char* name;
  ModelOptions options;
  DataInfo info;
};

std::vector<Bf16Case> bf16_cases() {
  ModelOptions bert{.kind = "bert",
                    .dropout = 0.0,
                    .num_layers = 2,
                    .num_heads = 3,
                    .hidden_size = 24,
                    .intermediate_size = 40,
                    .context_length = 16,
                    .layer_norm_eps = 1e-6,
                    .token_types = 3};
  ModelOptions masked = bert;
  masked.task = "masked_lm";
  const ModelOptions gpt2{.kind = "gpt2",
                          .dropout = 0.0,
                          .num_layers = 3,
                          .num_heads = 3,
                          .hidden_size = 24,
                          .intermediate_size = 80,
                          .context_length = 16,
                          .layer_norm_eps = 2e-5};
  const DataInfo sentences{.input_shape = {11}, .outputs = 5, .vocab_size = 37, .token_types = 3};
  const DataInfo text{.input_shape = {13}, .outputs = 61, .vocab_size = 61};
  return {{"bert_classify", bert, sentences},
          {"bert_masked_lm", masked, sentences},
          {"gpt2", gpt2, text}};
}

// Results by name: "logits", "gradient/…".
using Results = TensorMap;

Results results_of_path(const TensorMap& all, const std::string& prefix) {
  Results results;
  for (const auto& [name, tensor] : all) {
    if (name.starts_with(prefix)) results.set(name.substr(prefix.size()), tensor);
  }
  return results;
}

Results bf16_results(const Bf16Case& item, const SafetensorsFile& file) {
  const Task task = ModelRegistry().make(item.options, item.info);
  for (auto& parameter : task.module->named_parameters()) {
    const at::NoGradGuard no_grad;
    parameter.value().copy_(file.tensors.at("parameter/" + parameter.key()));
  }
  Batch batch;
  for (const char* field : {"inputs", "labels", "token_types", "attention_mask"}) {
    if (file.tensors.find(field) != nullptr) batch.fields.set(field, file.tensors.at(field));
  }
  batch.ids = at::arange(batch["inputs"].size(0));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::Tensor logits = task.predict(batch).outputs.detach();
  const at::Tensor loss = task.phases[0].forward(batch)[0].sum;
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  loss.backward();
  EXPECT_EQ(logits.scalar_type(), at::kBFloat16);
  if (logits.dim() == 3) logits = logits.transpose(1, 2);
  Results results;
  results.set("logits", logits.to(at::kFloat));
  for (const auto& parameter : task.module->named_parameters()) {
    results.set("gradient/" + parameter.key(), parameter.value().grad());
  }
  return results;
}

// All gradients as one vector, in the order of `names`.
at::Tensor joined_gradients(const Results& results, const Results& names) {
  std::vector<at::Tensor> parts;
  for (const auto& [name, unused] : names) {
    if (name != "logits") parts.push_back(results.at(name).to(at::kDouble).flatten());
  }
  return at::cat(parts);
}

double bf16_distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

TEST(Bf16Parity, scores_and_gradients_lie_within_the_spread_of_transformers_own_attention_paths) {
  const auto paths = bf16_fixture("bf16_paths");
  for (const Bf16Case& item : bf16_cases()) {
    SCOPED_TRACE(item.name);
    const Results mine = bf16_results(item, bf16_fixture(item.name));
    const std::string name = item.name;
    const Results eager = results_of_path(paths.tensors, name + "/eager/");
    const Results sdpa = results_of_path(paths.tensors, name + "/sdpa/");
    ASSERT_EQ(eager.size(), mine.size());
    const auto expect_within = [&](const at::Tensor& own, const at::Tensor& one,
                                   const at::Tensor& other, const std::string& what,
                                   const std::string& bound) {
      const double spread = paths.tensors.at(name + "/spread/" + bound).item<double>();
      EXPECT_LT(spread, 0.06) << what;  // a larger spread would make the bound below meaningless
      EXPECT_LE(std::min(bf16_distance(own, one), bf16_distance(own, other)), spread) << what;
    };
    expect_within(mine.at("logits"), eager.at("logits"), sdpa.at("logits"), "logits", "logits");
    expect_within(joined_gradients(mine, mine), joined_gradients(eager, mine),
                  joined_gradients(sdpa, mine), "gradients", "gradients");
    for (const auto& [key, tensor] : mine) {
      // The gradient of a key's bias is 0 up to rounding.
      if (key == "logits" || key.ends_with("key.bias")) continue;
      expect_within(tensor, eager.at(key), sdpa.at(key), key, "gradient");
    }
  }
}

}  // namespace
}  // namespace tanren
