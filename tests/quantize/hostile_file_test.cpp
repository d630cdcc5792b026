// Invalid files with 8-bit weights: they are not written here, and are refused early.
#include "tanren/base/file.h"
#include "tanren/base/one_line.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/config/write_config.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/python_folder.h"
#include "tanren/interop/transfer.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/predict/described_model.h"
#include "tanren/predict/fit_batch.h"
#include "tanren/quantize/quantized_task.h"
#include "tanren/run/prepare_whole.h"
#include "tests/quantize/quantized_files.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <fstream>
#include <memory>
#include <utility>
#include <vector>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class HostileFiles : public QuantizedFiles {
 protected:
  // The file with its config changed by `sets`.
  fs::path with_config(const fs::path& file, const std::vector<std::string>& sets) const {
    SafetensorsFile read = read_safetensors(file);
    std::string& text = read.metadata.at("tanren.config");
    text = to_toml(parse_config(text, "q", folder_.path(), sets, ModelRegistry().kinds()));
    fs::path changed = folder_.path() / "set.tanren.safetensors";
    write_safetensors(changed, read.tensors, read.metadata);
    return changed;
  }
};

// x [..., 8] → [..., 4]; its one weight has two names.
struct TwoNames : torch::nn::Module {
  TwoNames() {
    first = register_parameter("first", at::zeros({4, 8}));
    register_parameter("second", first);
  }
  at::Tensor first;
};

QuantizedParameter ones_read_by(WeightReader reader, const std::vector<int64_t>& shape,
                                int64_t group = 0) {
  return {quantize_weight(at::ones(shape), "w", group), reader, {}};
}

TEST_F(HostileFiles, are_not_written_with_a_note_that_no_reader_takes) {
  const fs::path plain = bert(), file = folder_.path() / "new.safetensors";
  const SafetensorsFile read = read_safetensors(plain);
  const auto error = [&](const QuantizeNote& note) {
    return error_of<InputError>([&] {
      write_whole_model(file, read.tensors, read.metadata, of_bert(read.tensors, true), note);
    });
  };
  TANREN_EXPECT_CONTAINS(error({}), "an unknown scheme");
  QuantizeNote note = note_of("static");
  note.samples = -1;
  TANREN_EXPECT_CONTAINS(error(note), "no usable samples");
  note = note_of("static");
  note.range = "largest";
  TANREN_EXPECT_CONTAINS(error(note), "an unknown range");
  EXPECT_FALSE(fs::exists(file));
  note = note_of("static");
  note.kept["any.weight"] = "an operator \xff reads it";
  write_whole_model(file, read.tensors, read.metadata, of_bert(read.tensors, true), note);
  const QuantizeNote again = load_model(file).quantized;
  EXPECT_EQ(again.kept.at("any.weight"),
            "an operator " + std::string(kReplacementCharacter) + " reads it");
}

TEST_F(HostileFiles, are_not_written_of_weights_that_no_reader_takes) {
  const auto error = [&](const std::vector<int64_t>& shape, QuantizedParameter parameter) {
    TensorMap tensors;
    tensors.set("c.weight", at::ones(shape));
    return error_of<InputError>([&] {
      with_quantized(tensors, {{"c.weight", std::move(parameter)}});
    });
  };
  TANREN_EXPECT_CONTAINS(error({8, 4, 3, 3}, ones_read_by(WeightReader::linear, {8, 4, 3, 3})),
                         "the weight of this linear is int8 with 2 dims");
  QuantizedParameter oblong = ones_read_by(WeightReader::convolution, {8, 4, 3, 1});
  QuantizedParameter grouped = ones_read_by(WeightReader::convolution, {8, 4, 2, 2}, 8);
  TensorMap tensors;
  tensors.set("c.weight", at::ones({8, 4, 3, 1}));
  EXPECT_EQ(with_quantized(tensors, {{"c.weight", oblong}}).size(), 2u);
  oblong.input = grouped.input = InputScale{0.5F, 128};
  TANREN_EXPECT_CONTAINS(error({8, 4, 3, 1}, oblong), "a square kernel and one");
  TANREN_EXPECT_CONTAINS(error({8, 4, 2, 2}, grouped), "2 scales a channel");
}

// The file says nothing about inputs except its scheme, so all parameters must agree with the
// scheme.
TEST_F(HostileFiles, of_scheme_weights_answer_as_they_were_written_and_from_memory_of_their_own) {
  const fs::path plain = bert();
  QuantizedParameters parameters = of_bert(read_safetensors(plain).tensors, false);
  const auto error = [&](const std::string& scheme) {
    return error_of<InputError>([&] { written(plain, parameters, note_of(scheme)); });
  };
  TANREN_EXPECT_CONTAINS(error("weights"), "becomes 8-bit, and the scheme is weights");
  for (auto& [name, parameter] : parameters) parameter.is_weight_alone = true;
  TANREN_EXPECT_CONTAINS(error("dynamic"), "stays floating, and the scheme is dynamic");
  const fs::path file = written(plain, parameters, note_of("weights"));
  const WholeModel model = load_model(file);
  const at::Tensor wanted = outputs_of(quantized(load_model(plain).task, parameters));
  EXPECT_TRUE(at::equal(outputs_of(model.task), wanted));
  const auto size = fs::file_size(file);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary) << std::string(size, '\x7f');
  EXPECT_TRUE(at::equal(outputs_of(model.task), wanted));
}

// The error names the file, before a module is built.
TEST_F(HostileFiles, with_an_input_scale_of_an_oblong_convolution_are_refused) {
  TensorMap tensors;
  tensors.set("c.weight", at::ones({4, 2, 3, 1}, at::kChar));
  tensors.set("c.weight_scale", at::ones({4, 1}));
  tensors.set("c.input_scale", at::ones({1}));
  tensors.set("c.input_zero_point", at::zeros({1}, at::kChar));
  QuantizeNote note;
  note.readers["c.weight"] = WeightReader::convolution;
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] { as_parameters(tensors, note, "f"); }),
                         "f: c.weight is a convolution's weight of shape [4, 2, 3, 1]");
}

TEST_F(HostileFiles, are_written_without_8_bits_as_version_1) {
  const fs::path file = quantized_bert(), wide = folder_.path() / "wide.safetensors";
  const SafetensorsFile read = read_safetensors(file);
  TANREN_EXPECT_CONTAINS(
      error_of<InputError>([&] { write_whole_model(wide, read.tensors, read.metadata); }),
      "is an 8-bit weight and not among the parameters");
  EXPECT_FALSE(fs::exists(wide));
  const QuantizeNote note = quantize_note(read.metadata, "f");
  write_whole_model(wide, expanded(read.tensors, note, "f"), read.metadata);
  const Metadata metadata = read_safetensors(wide).metadata;
  EXPECT_EQ(metadata.at("tanren.version"), "1");
  EXPECT_EQ(metadata.count(kQuantizeKey), 0u);
  EXPECT_TRUE(load_model(wide).quantized.empty());
}

// The tensors are as RunState::model_tensors gives them: detached, so that no two names share a
// tensor object.
TEST_F(HostileFiles, are_not_written_with_one_of_two_names_in_8_bits) {
  const at::Tensor weight = at::ones({4, 8});
  TensorMap tensors;
  tensors.set("a.weight", weight.detach());
  tensors.set("b.weight", weight.detach());
  tensors.set("row.bias", weight[0]);
  const QuantizedParameter fits = ones_read_by(WeightReader::linear, {4, 8});
  TANREN_EXPECT_CONTAINS(error_of<InputError>([&] {
                           with_quantized(tensors, {{"b.weight", fits}});
                         }),
                         "a.weight has the numbers of b.weight");
  EXPECT_EQ(with_quantized(tensors, {{"a.weight", fits}, {"b.weight", fits}}).size(), 5u);
}

TEST_F(HostileFiles, of_a_model_in_8_bits_are_not_written_as_nan) {
  const fs::path file = quantized_bert(), again = folder_.path() / "again.safetensors";
  const SafetensorsFile read = read_safetensors(file);
  const WholeModel model = load_model(file);
  const TensorMap tensors = tensors_of(*model.task.module);
  for (const std::string name : {"w.safetensors", "w.pt"}) {
    const fs::path weights = folder_.path() / name;
    TANREN_EXPECT_CONTAINS(error_of<InputError>([&] { write_weights(weights, tensors); }),
                           "stands for a weight in 8 bits");
    EXPECT_FALSE(fs::exists(weights)) << name;
  }
  TANREN_EXPECT_CONTAINS(
      error_of<InputError>([&] { write_whole_model(again, tensors, read.metadata); }),
      "stands for a weight in 8 bits");
  EXPECT_FALSE(fs::exists(again));

  QuantizedParameters parameters = quantized_parameters(read.tensors, model.quantized, "f");
  write_whole_model(again, tensors, read.metadata, parameters, model.quantized);
  EXPECT_TRUE(at::equal(outputs_of(load_model(again).task), outputs_of(model.task)));
  parameters.erase(kQuery);
  TANREN_EXPECT_CONTAINS(
      error_of<InputError>(
          [&] { write_whole_model(again, tensors, read.metadata, parameters, model.quantized); }),
      kQuery + " stands for a weight in 8 bits");
}

TEST_F(HostileFiles, of_a_run_in_any_precision_are_opened) {
  const fs::path plain = bert("fp64");
  const fs::path file =
      written(plain, of_bert(read_safetensors(plain).tensors, false), note_of("dynamic"));
  for (const std::vector<std::string>& sets : {std::vector<std::string>{},
                                               {"precision.mode=fp16"},
                                               {"precision.mode=auto", "precision.level=O2"}}) {
    const fs::path changed = with_config(file, sets);
    const WholeModel model = load_model(changed);
    EXPECT_EQ(model.config.precision.mode, "auto");
    EXPECT_EQ(model.config.precision.level, "");
    EXPECT_TRUE(outputs_of(model.task).isfinite().all().item<bool>());
    for (const std::vector<std::string>& asked :
         {std::vector<std::string>{}, {"precision.mode=bf16"}, {"precision.mode=fp32"}}) {
      const auto evaluated = evaluate_whole_model(changed, "", asked, Registry(), nullptr);
      EXPECT_GT(evaluated.report.values.front().second, 0);
    }
  }
  const fs::path out = folder_.path() / "out";
  EXPECT_FALSE(write_python_folder(file, out, at::kFloat, {}).files.empty());
  for (const std::string set : {"precision.mode=fp16", "precision.level=O1"}) {
    TANREN_EXPECT_CONTAINS(
        error_of<ConfigError>([&] { evaluate_whole_model(file, "", {set}, Registry(), nullptr); }),
        "has 8-bit weights, which need");
  }
}

TEST_F(HostileFiles, with_a_note_that_grows_are_refused_at_its_first_fault) {
  const fs::path file = quantized_bert();
  const std::string start = R"({"scheme":"dynamic","range":"","samples":0,)";
  TANREN_EXPECT_CONTAINS(refused_note(file, start + R"("readers":{"a":[)"),
                         "something that is no text among readers");
  TANREN_EXPECT_CONTAINS(refused_note(file, start + R"("more":[)"), "a list or an object");
  std::string many;
  for (int i = 0; i <= 1 << 17; ++i) many += fmt::format("{}\"{}\":\"\"", i > 0 ? "," : "", i);
  TANREN_EXPECT_CONTAINS(refused_note(file, start + R"("kept":{)" + many), "too many names");
}

// The weights of the model take 13.6 MB in fp32, 3.4 MB in 8 bits.
TEST_F(HostileFiles, fit_below_a_limit_for_the_bytes_that_they_have) {
  const fs::path plain = trained(
      "kind = \"bert\"\nnum_layers = 1\nnum_heads = 2\nhidden_size = 512\n"
      "intermediate_size = 2048\ncontext_length = 9",
      R"(["inputs: int[7] in [0, 9]", "labels: int[] in [0, 2]"])");
  const fs::path file =
      written(plain, of_bert(read_safetensors(plain).tensors, false), note_of("dynamic"));
  const auto fitted = [](const fs::path& of) {
    const SafetensorsFile read = read_safetensors(of);
    const Registry registry;
    const auto description =
        description_of(read.metadata, of, {"memory.limit=14MB"}, registry.known());
    const QuantizeNote note = check_described(description, read, "f", registry.models);
    Prepared prepared = prepare_whole(description, read, note, "f", registry, /*eval=*/nullptr);
    Batch one;
    for (const auto& [name, field] : some_tokens(false).fields) {
      one.fields.set(name, field.narrow(0, 0, 1));
    }
    const auto probe = probe_dataset(std::move(one), description.info);
    prepared.fit.dataset = probe.get();
    return fitted_batch(prepared, 1);
  };
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { fitted(plain); }), "one sample takes");
  EXPECT_EQ(fitted(file), 1);
}

TEST_F(HostileFiles, in_the_folder_of_a_run_on_a_gpu_stay_on_the_cpu) {
  const fs::path file = quantized_bert(), run = folder_.path() / "run";
  fs::remove(run / kWholeFile);
  fs::copy_file(file, run / kWholeFile);
  std::string config = read_file(run / "config.toml");
  const std::string device = "device = \"auto\"";
  const auto at = config.find(device);
  ASSERT_NE(at, std::string::npos);
  config.replace(at, device.size(), "device = \"cuda\"");
  write_file(run / "config.toml", config);
  EXPECT_EQ(described_model(run, {}, Registry()).description.config.run.device, "cpu");
}

TEST_F(HostileFiles, of_another_version_are_not_expanded) {
  const fs::path file = quantized_bert(), changed = folder_.path() / "changed.safetensors";
  const SafetensorsFile read = read_safetensors(file);
  Metadata metadata = read.metadata;
  metadata.erase(kQuantizeKey);
  write_safetensors(changed, read.tensors, metadata);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { read_expanded(changed); }),
                         "has version 2 without tanren.quantize");
  metadata = read.metadata;
  metadata["tanren.version"] = "3";
  write_safetensors(changed, read.tensors, metadata);
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { read_expanded(changed); }),
                         "has version 3 of the description");
}

TEST_F(HostileFiles, are_refused_before_any_weight_is_expanded) {
  install_cpu_allocator();
  constexpr int64_t kSide = 1024, kExpanded = 4 * kSide * kSide;
  TensorMap tensors;
  QuantizeNote note;
  for (const std::string name : {"a.weight", "b.weight", "c.weight", "d.weight"}) {
    tensors.set(name, at::ones({kSide, kSide}, at::kChar));
    tensors.set(name + "_scale", name == "d.weight" ? at::zeros({kSide, 1}) : at::ones({kSide, 1}));
    note.readers[name] = WeightReader::linear;
  }
  restart_cpu_memory_peak();
  const int64_t before = cpu_memory_stats().live_bytes;
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] { expanded(tensors, note, "f"); }),
                         "f: d.weight has a scale");
  EXPECT_LT(cpu_memory_stats().recent_peak_bytes - before, kExpanded / 2)
      << "rows are summed some at a time";
}

TEST_F(HostileFiles, with_other_numbers_under_a_second_name_are_refused) {
  ModelRegistry models;
  models.add("two", [](const ModelOptions&, const DataInfo&) {
    Task task;
    task.module = std::make_shared<TwoNames>();
    PhaseSpec phase;
    phase.forward = [](const Batch&) { return Terms(); };
    task.phases.push_back(std::move(phase));
    return task;
  });
  ModelOptions options;
  options.kind = "two";
  const auto build = [&](WeightReader second, float scale, int64_t value) {
    SafetensorsFile read;
    QuantizeNote note;
    note.scheme = "dynamic";
    note.readers = {{"first", WeightReader::linear}, {"second", second}};
    for (const std::string name : {"first", "second"}) {
      read.tensors.set(name, at::ones({4, 8}, at::kChar));
      read.tensors.set(name + "_scale", at::ones({4, 1}));
    }
    read.tensors.set("second", at::full({4, 8}, value, at::kChar));
    read.tensors.set("second_scale", at::full({4, 1}, scale));
    build_described(options, {}, read, note, "f", models, at::kFloat);
  };
  build(WeightReader::linear, 1, 1);
  const auto refused_build = [&](WeightReader second, float scale, int64_t value) {
    return error_of<CheckpointError>([&] { build(second, scale, value); });
  };
  TANREN_EXPECT_CONTAINS(refused_build(WeightReader::embedding, 1, 1),
                         "first and second are one parameter, and the operators that read them");
  TANREN_EXPECT_CONTAINS(refused_build(WeightReader::linear, 1, 2), "their 8-bit numbers differ");
  TANREN_EXPECT_CONTAINS(refused_build(WeightReader::linear, 2, 1), "their 8-bit numbers differ");
}

TEST_F(HostileFiles, with_a_scale_that_overflows_are_refused) {
  const fs::path file = quantized_bert();
  at::Tensor scales = at::ones({8, 1});
  scales[5] = 3e38F;
  TANREN_EXPECT_CONTAINS(refused_tensor(file, kQuery + "_scale", scales), "makes -128 infinite");
}

TEST_F(HostileFiles, become_no_folder_in_a_dtype_that_loses_their_scales) {
  const fs::path plain = bert(), out = folder_.path() / "out";
  SafetensorsFile read = read_safetensors(plain);
  read.tensors.at(kQuery)[0].zero_();  // its scale is the smallest number, and does not matter
  QuantizedParameters parameters = of_bert(read.tensors, true);
  const auto convert = [&](at::ScalarType dtype) {
    fs::remove_all(out);
    write_python_folder(written(plain, parameters, note_of("static")), out, dtype, {});
  };
  convert(at::kHalf);
  parameters.at(kQuery).input->scale = 1e-8F;
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] { convert(at::kHalf); }),
                         "has a scale that is 0 or infinite in Half");
  EXPECT_FALSE(fs::exists(out));
  convert(at::kBFloat16);
  parameters.at(kQuery).weight.scales[1] = 1e-8F;
  parameters.at(kQuery).input->scale = 1;
  TANREN_EXPECT_CONTAINS(error_of<CheckpointError>([&] { convert(at::kHalf); }),
                         kQuery + "_scale has a scale that is 0");
}

TEST_F(HostileFiles, say_what_a_folder_of_theirs_computes_otherwise_and_what_it_cannot_begin) {
  for (const bool is_static : {true, false}) {
    fs::remove_all(folder_.path() / "run");
    const fs::path file = quantized_bert(is_static), out = folder_.path() / "out";
    fs::remove_all(out);
    const PythonFolder made = write_python_folder(file, out, {}, {});
    EXPECT_EQ(made.remarks.at(0).find("one scale for the batch") == std::string::npos, is_static);
    const WholeModel model = load_model(folder_.path() / "run" / kWholeFile);
    ModelOptions options = model.config.model;
    options.init_from = out.string();
    TANREN_EXPECT_CONTAINS(
        error_of<ConfigError>([&] { init_from_file(*model.task.module, options); }),
        "has 8-bit weights (");
  }
}

TEST_F(HostileFiles, are_listed_with_the_fault_of_their_note) {
  const fs::path file = quantized_bert(), changed = folder_.path() / "changed.safetensors";
  SafetensorsFile read = read_safetensors(file);
  const auto listed = [&](const std::string& note) {
    read.metadata[kQuantizeKey] = note;
    write_safetensors(changed, read.tensors, read.metadata);
    return testing::shell(testing::forked_tanren() + " convert changed.safetensors --list",
                          folder_.path());
  };
  auto json = nlohmann::json::parse(read.metadata.at(kQuantizeKey));
  json["readers"]["gone.weight"] = "linear";
  TANREN_EXPECT_CONTAINS(listed(json.dump()).output, "9 weights in 8 bits");
  const auto faulty = listed("{}");
  EXPECT_EQ(faulty.code, 0) << faulty.output;
  TANREN_EXPECT_CONTAINS(faulty.output, "has no scheme in tanren.quantize");
  TANREN_EXPECT_CONTAINS(faulty.output, kQuery + "  [8, 8]  int8");
}

}  // namespace
}  // namespace tanren
