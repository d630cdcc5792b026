// A trained bert and a trained gpt2 as whole models with 8-bit weights, for tests of their files.
#pragma once

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/config/read_config.h"
#include "tanren/interop/export.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/interop/whole_model.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/run/run.h"

#include <gtest/gtest.h>
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <filesystem>
#include <functional>
#include <string>

namespace tanren {

inline const std::string kQuery = "bert.encoder.layer.0.attention.self.query.weight";
inline const std::string kWords = "bert.embeddings.word_embeddings.weight";
inline const std::string kPositions = "bert.embeddings.position_embeddings.weight";

inline TensorMap without(const TensorMap& tensors, const std::string& name) {
  TensorMap rest;
  for (const auto& [other, tensor] : tensors) {
    if (other != name) rest.set(other, tensor);
  }
  return rest;
}

inline int64_t bytes_of(const TensorMap& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

// Four texts with a class each, or with a label for each token.
inline Batch some_tokens(bool are_labels_of_tokens) {
  Batch batch;
  const at::Tensor inputs = at::arange(4 * 7).view({4, 7}).remainder(10);
  batch.fields.set("inputs", inputs);
  batch.fields.set("labels", are_labels_of_tokens ? inputs : at::zeros({4}, at::kLong));
  batch.ids = ids_of({0, 1, 2, 3});
  return batch;
}

inline at::Tensor outputs_of(const Task& task, bool are_labels_of_tokens = false) {
  const at::NoGradGuard no_grad;
  return task.predict(some_tokens(are_labels_of_tokens)).outputs;
}

class QuantizedFiles : public ::testing::Test {
 protected:
  void TearDown() override {  // a test may have installed it
    set_cpu_memory_limit(0);
    uninstall_cpu_allocator();
  }
  // Trains a model with these lines of its section; returns its file.
  std::filesystem::path trained(const std::string& model, const std::string& fields,
                                const std::string& mode = "fp32") const {
    const auto config = parse_config(
        "[model]\n" + model + "\n[data.train]\nkind = \"synthetic\"\nfields = " + fields +
            "\nsamples = 8\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"" + mode +
            "\"\n[run]\nname = \"q\"\nsteps = 1\nthreads = 1\nseed = 5\n",
        "q.toml", folder_.path(), {}, ModelRegistry().kinds());
    run({.config = config, .folder = folder_.path() / "run"}, {});
    return folder_.path() / "run" / kWholeFile;
  }
  std::filesystem::path bert(const std::string& mode = "fp32") const {
    return trained(
        "kind = \"bert\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\n"
        "intermediate_size = 12\ncontext_length = 9",
        R"(["inputs: int[7] in [0, 9]", "labels: int[] in [0, 2]"])", mode);
  }
  std::filesystem::path gpt2() const {
    return trained(
        "kind = \"gpt2\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 8\ncontext_length = 9",
        R"(["inputs: int[7] in [0, 9]", "labels: int[7] in [0, 9]"])");
  }

  // The linear layers of a bert, and its table of words.
  static QuantizedParameters of_bert(const TensorMap& tensors, bool is_static) {
    QuantizedParameters parameters;
    for (const auto& [name, tensor] : tensors) {
      if (tensor.dim() != 2 || !name.ends_with(".weight")) continue;
      const bool is_table = name.find("embeddings.") != std::string::npos;
      if (is_table && name != kWords) continue;
      QuantizedParameter& parameter = parameters[name];
      parameter.weight = quantize_weight(tensor, name);
      parameter.reader = is_table ? WeightReader::embedding : WeightReader::linear;
      if (is_static && !is_table) parameter.input = InputScale{0.03125F, 100};
    }
    return parameters;
  }
  // The projections of a gpt2.
  static QuantizedParameters of_gpt2(const TensorMap& tensors) {
    QuantizedParameters parameters;
    for (const auto& [name, tensor] : tensors) {
      if (tensor.dim() != 2 || name.find(".c_") == std::string::npos) continue;
      parameters[name] = {quantize_weight(tensor.t(), name), WeightReader::projection, {}};
    }
    return parameters;
  }
  static QuantizeNote note_of(const std::string& scheme) {
    QuantizeNote note;
    note.scheme = scheme;
    if (scheme == "static") {
      note.range = "mse";
      note.samples = 8;
    }
    note.kept = {{kPositions, "narrow reads it"}};
    return note;
  }
  std::filesystem::path written(const std::filesystem::path& plain,
                                const QuantizedParameters& parameters,
                                const QuantizeNote& note) const {
    const SafetensorsFile read = read_safetensors(plain);
    std::filesystem::path file = folder_.path() / "q.tanren.safetensors";
    write_whole_model(file, read.tensors, read.metadata, parameters, note);
    return file;
  }
  std::filesystem::path quantized_bert(bool is_static = true) const {
    const std::filesystem::path plain = bert();
    return written(plain, of_bert(read_safetensors(plain).tensors, is_static),
                   note_of(is_static ? "static" : "dynamic"));
  }

  // The error of load_model for a changed copy of the file.
  using Edit = std::function<void(TensorMap&, Metadata&)>;
  std::string refused(const std::filesystem::path& file, const Edit& edit) const {
    SafetensorsFile read = read_safetensors(file);
    edit(read.tensors, read.metadata);
    const std::filesystem::path changed = folder_.path() / "changed.safetensors";
    write_safetensors(changed, read.tensors, read.metadata);
    std::string said = testing::error_of<InputError>([&] { load_model(changed); });
    TANREN_EXPECT_CONTAINS(said, "changed.safetensors");
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    return said;
  }
  std::string refused_tensor(const std::filesystem::path& file, const std::string& name,
                             const at::Tensor& tensor) const {
    return refused(file, [&](TensorMap& tensors, Metadata&) { tensors.set(name, tensor); });
  }
  std::string refused_without(const std::filesystem::path& file, const std::string& name) const {
    return refused(file, [&](TensorMap& tensors, Metadata&) { tensors = without(tensors, name); });
  }
  std::string refused_note(const std::filesystem::path& file, const std::string& text) const {
    return refused(file, [&](TensorMap&, Metadata& metadata) { metadata[kQuantizeKey] = text; });
  }

  testing::TemporaryFolder folder_;
};

}  // namespace tanren
