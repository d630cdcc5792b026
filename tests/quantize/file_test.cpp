// Whole models with 8-bit weights: their file, what reads it, and what is refused.
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/base/text.h"
#include "tanren/interop/pretrained.h"
#include "tanren/interop/python_folder.h"
#include "tanren/interop/transfer.h"
#include "tanren/quantize/quantized_task.h"
#include "tanren/quantize/replaced.h"
#include "tests/quantize/quantized_files.h"
#include "tests/support/forked.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tanren {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

TEST_F(QuantizedFiles, without_8_bit_weights_are_of_version_1_byte_for_byte) {
  const fs::path plain = bert();
  const SafetensorsFile read = read_safetensors(plain);
  EXPECT_EQ(read.metadata.at("tanren.version"), "1");
  EXPECT_EQ(read.metadata.count(kQuantizeKey), 0u);
  EXPECT_EQ(read_file(written(plain, {}, {})), read_file(plain));
  EXPECT_TRUE(load_model(plain).quantized.empty());
}

TEST_F(QuantizedFiles, hold_the_weights_under_compressed_tensors_names_bit_by_bit) {
  const fs::path plain = bert();
  const SafetensorsFile before = read_safetensors(plain);
  const QuantizedParameters parameters = of_bert(before.tensors, true);
  ASSERT_GT(parameters.size(), 6u);
  const fs::path file = written(plain, parameters, note_of("static"));
  const SafetensorsFile read = read_safetensors(file);
  EXPECT_EQ(read.metadata.at("tanren.version"), "2");
  EXPECT_EQ(read.tensors.at(kQuery).scalar_type(), at::kChar);
  const at::Tensor scale = read.tensors.at(kQuery + "_scale");
  EXPECT_EQ(scale.scalar_type(), at::kFloat);
  EXPECT_EQ(scale.sizes(), (std::vector<int64_t>{8, 1}));
  const std::string layer = kQuery.substr(0, kQuery.rfind("weight"));
  EXPECT_EQ(read.tensors.at(layer + "input_scale").item<float>(), 0.03125F);
  const at::Tensor zero_point = read.tensors.at(layer + "input_zero_point");
  EXPECT_EQ(zero_point.scalar_type(), at::kChar);
  EXPECT_EQ(zero_point.item<int64_t>(), 100 - 128) << "compressed-tensors' bytes are signed";
  EXPECT_FALSE(read.tensors.contains("bert.embeddings.word_embeddings.input_scale"));

  const QuantizeNote note = quantize_note(read.metadata, "f");
  EXPECT_EQ(note.scheme, "static");
  EXPECT_EQ(note.range, "mse");
  EXPECT_EQ(note.samples, 8);
  EXPECT_EQ(note.kept, note_of("static").kept);
  const QuantizedParameters again = quantized_parameters(read.tensors, note, "f");
  ASSERT_EQ(again.size(), parameters.size());
  int64_t bytes = bytes_of(before.tensors);
  for (const auto& [name, of] : parameters) {
    const QuantizedParameter& got = again.at(name);
    EXPECT_TRUE(at::equal(got.weight.values, of.weight.values)) << name;
    EXPECT_TRUE(at::equal(got.weight.scales, of.weight.scales)) << name;
    EXPECT_TRUE(at::equal(got.weight.sums, of.weight.sums)) << name;
    EXPECT_EQ(got.reader, of.reader) << name;
    ASSERT_EQ(got.input.has_value(), of.input.has_value()) << name;
    bytes += 4 * of.weight.out() - 3 * of.weight.values.numel();
    if (!of.input) continue;
    EXPECT_EQ(got.input->scale, of.input->scale) << name;
    EXPECT_EQ(got.input->zero_point, of.input->zero_point) << name;
    bytes += 5;
  }
  EXPECT_EQ(bytes_of(read.tensors), bytes) << "a byte for each number, and a scale for a channel";
  for (const auto& [name, tensor] : before.tensors) {
    if (parameters.count(name) > 0) continue;
    EXPECT_TRUE(at::equal(read.tensors.at(name), tensor)) << name;
  }
  const fs::path second = folder_.path() / "second.safetensors";
  write_whole_model(second, before.tensors, before.metadata, again, note);
  EXPECT_EQ(read_file(second), read_file(file));
}

TEST_F(QuantizedFiles, predict_bitwise_as_the_model_that_was_written) {
  for (const bool is_static : {true, false}) {
    fs::remove_all(folder_.path() / "run");
    const fs::path file = quantized_bert(is_static), plain = folder_.path() / "run" / kWholeFile;
    const QuantizedParameters parameters = of_bert(read_safetensors(plain).tensors, is_static);
    const WholeModel model = load_model(file);
    EXPECT_EQ(model.quantized.readers.size(), parameters.size());
    const Task plain_task = load_model(plain).task;
    const at::Tensor floating = outputs_of(plain_task);
    const at::Tensor wanted = outputs_of(quantized(plain_task, parameters));
    const at::Tensor got = outputs_of(model.task);
    EXPECT_TRUE(at::equal(got, wanted)) << got << wanted;
    EXPECT_FALSE(at::equal(got, floating));
    const auto named = model.task.module->named_parameters();
    for (const auto& [name, parameter] : parameters) EXPECT_TRUE(is_replaced(named[name])) << name;
    EXPECT_FALSE(is_replaced(named[kPositions]));

    // The task has taken over all of the file.
    const auto size = fs::file_size(file);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        << std::string(size, '\x7f');
    EXPECT_TRUE(at::equal(outputs_of(model.task), wanted));
  }
}

TEST_F(QuantizedFiles, of_a_gpt2_hold_turned_projections) {
  const fs::path plain = gpt2();
  const SafetensorsFile before = read_safetensors(plain);
  const QuantizedParameters parameters = of_gpt2(before.tensors);
  ASSERT_EQ(parameters.size(), 4u);
  const fs::path file = written(plain, parameters, note_of("dynamic"));
  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  EXPECT_EQ(before.tensors.at(name).sizes(), (std::vector<int64_t>{8, 32}));
  EXPECT_EQ(read_safetensors(file).tensors.at(name).sizes(), (std::vector<int64_t>{32, 8}));
  const at::Tensor wanted = outputs_of(quantized(load_model(plain).task, parameters), true);
  EXPECT_TRUE(at::equal(outputs_of(load_model(file).task, true), wanted));
  const TensorMap wide = read_expanded(file).state.tensors;
  ASSERT_EQ(wide.size(), before.tensors.size());
  EXPECT_TRUE(at::equal(wide.at(name), expand(parameters.at(name).weight, at::kFloat).t()));
}

TEST_F(QuantizedFiles, are_evaluated_in_fp32_and_bf16_on_the_cpu_alone) {
  const fs::path file = quantized_bert(false), plain = folder_.path() / "run" / kWholeFile;
  const auto loss_of = [&](const fs::path& of, const std::string& set) {
    return evaluate_whole_model(of, "", {set}, Registry(), nullptr).report.values.front().second;
  };
  const double floating = loss_of(plain, "precision.mode=fp32");
  for (const std::string mode : {"fp32", "bf16"}) {
    const double loss = loss_of(file, "precision.mode=" + mode);
    EXPECT_NEAR(loss, floating, 0.05) << mode;
    EXPECT_NE(loss, floating) << mode;
  }
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { loss_of(file, "precision.mode=fp64"); }),
                         "has 8-bit weights, which need fp32 or bf16, and precision.mode is fp64");
  TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] { loss_of(file, "run.device=cuda"); }),
                         "which need the CPU, and run.device is cuda");
}

TEST_F(QuantizedFiles, with_numbers_that_no_scale_has_are_refused) {
  const fs::path file = quantized_bert();
  const std::string layer = kQuery.substr(0, kQuery.rfind("weight"));
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float number : {std::nanf(""), 0.0F, -1.0F, kInfinite}) {
    at::Tensor scales = at::ones({8, 1});
    scales[5] = number;
    TANREN_EXPECT_CONTAINS(refused_tensor(file, kQuery + "_scale", scales),
                           kQuery + " has a scale that is not finite and above 0");
    TANREN_EXPECT_CONTAINS(refused_tensor(file, layer + "input_scale", at::full({1}, number)),
                           kQuery + " has an input scale");
  }
  TANREN_EXPECT_CONTAINS(refused_tensor(file, layer + "input_scale", at::full({1}, 1e-40F)),
                         "has an input scale");
}

TEST_F(QuantizedFiles, with_tensors_of_another_shape_or_dtype_are_refused) {
  const fs::path file = quantized_bert();
  const std::string layer = kQuery.substr(0, kQuery.rfind("weight"));
  const std::string scale = kQuery + "_scale";
  const auto bytes = [](std::vector<int64_t> sizes) { return at::ones(sizes, at::kChar); };
  TANREN_EXPECT_CONTAINS(refused_tensor(file, scale, at::ones({4, 1})),
                         "has shape [4, 1] for values of shape [8, 8]");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, scale, at::ones({8})),
                         "has shape [8] for values of shape [8, 8]");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, scale, at::ones({8, 3})),
                         "has scales of shape [8, 3] for values of shape [8, 8]");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, scale, at::ones({8, 1}, at::kDouble)),
                         "scales of dtype Double, not int8 and fp32");
  TANREN_EXPECT_CONTAINS(refused_without(file, scale), "_scale is not there");
  TANREN_EXPECT_CONTAINS(refused_without(file, kQuery), kQuery + " is not there");
  TANREN_EXPECT_CONTAINS(refused_without(file, layer + "input_zero_point"),
                         "input_zero_point is not there");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, layer + "input_scale", at::ones({2})),
                         "is Float [2], not one number of dtype Float");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, layer + "input_zero_point", at::ones({1}, at::kByte)),
                         "is Byte [1], not one number of dtype Char");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, kQuery, at::ones({8, 8})),
                         "is Float [8, 8], and the weight of this linear is int8 with 2 dims");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, kQuery, bytes({64})), "is Char [64]");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, kQuery, bytes({8, 4})),
                         "is an 8-bit weight of shape [8, 4], and the model's has shape [8, 8]");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, kPositions, bytes({9, 8})),
                         kPositions + " is int8, and no reader in tanren.quantize");
  const std::string words = kWords.substr(0, kWords.rfind("weight"));
  TANREN_EXPECT_CONTAINS(refused(file,
                                 [&](TensorMap& tensors, Metadata&) {
                                   tensors.set(words + "input_scale", at::ones({1}));
                                   tensors.set(words + "input_zero_point", bytes({1}));
                                 }),
                         "is a table and has an input scale");
  TANREN_EXPECT_CONTAINS(refused_tensor(file, "more.weight", bytes({2})), "1 unexpected");
}

TEST_F(QuantizedFiles, with_a_note_that_does_not_fit_are_refused) {
  const fs::path file = quantized_bert();
  const auto json = nlohmann::json::parse(read_safetensors(file).metadata.at(kQuantizeKey));
  const auto with = [&](const std::string& key, const nlohmann::json& value) {
    auto other = json;
    other[key] = value;
    return refused_note(file, other.dump());
  };
  const auto with_reader = [&](const std::string& name, const std::string& reader) {
    auto readers = json["readers"];
    readers[name] = reader;
    return with("readers", readers);
  };
  TANREN_EXPECT_CONTAINS(refused(file, [](TensorMap&, Metadata& all) { all.erase(kQuantizeKey); }),
                         "has version 2 without tanren.quantize");
  TANREN_EXPECT_CONTAINS(
      refused(file, [](TensorMap&, Metadata& all) { all["tanren.version"] = "1"; }),
      "has version 1 and tanren.quantize");
  TANREN_EXPECT_CONTAINS(
      refused(file, [](TensorMap&, Metadata& all) { all["tanren.version"] = "3"; }),
      "has version 3 of the description, we read 1 and 2");
  TANREN_EXPECT_CONTAINS(refused_note(file, "[]"), "no JSON object in tanren.quantize");
  TANREN_EXPECT_CONTAINS(refused_note(file, "{}"), "no scheme");
  TANREN_EXPECT_CONTAINS(with("scheme", "int4"), "an unknown scheme");
  TANREN_EXPECT_CONTAINS(with("range", 7), "an unknown range");
  TANREN_EXPECT_CONTAINS(with("samples", -1), "no usable samples");
  TANREN_EXPECT_CONTAINS(with("kept", nlohmann::json::array()), "kept that are no object");
  TANREN_EXPECT_CONTAINS(with("readers", nlohmann::json::object()), "no 8-bit weight");
  TANREN_EXPECT_CONTAINS(with_reader(kQuery, "lstm"), "an unknown operator among readers");
  TANREN_EXPECT_CONTAINS(with_reader(kQuery, "convolution"), "int8 with 4 dims");
  TANREN_EXPECT_CONTAINS(with_reader("no.weight", "linear"), "no.weight is not there");
  TANREN_EXPECT_CONTAINS(with_reader(kQuery + "_scale", "linear"),
                         "also belongs to another 8-bit weight");
  TANREN_EXPECT_CONTAINS(refused(file,
                                 [&](TensorMap& tensors, Metadata& metadata) {
                                   auto other = json;
                                   other["readers"]["no.weight"] = "linear";
                                   metadata[kQuantizeKey] = other.dump();
                                   tensors.set("no.weight", at::ones({2, 2}, at::kChar));
                                   tensors.set("no.weight_scale", at::ones({2, 1}));
                                 }),
                         "has the 8-bit weight no.weight, and the model no such parameter");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  TANREN_EXPECT_CONTAINS(refused_note(file, "{\"scheme\":" + deep + "}"), "an unknown scheme");
}

TEST_F(QuantizedFiles, are_not_written_of_what_no_reader_takes) {
  TensorMap tensors;
  const at::Tensor weight = at::ones({4, 8});
  tensors.set("a.weight", weight);
  tensors.set("b.weight", weight);
  tensors.set("c.kernel", at::ones({4, 8}));
  tensors.set("c.kernel_input_scale", at::ones({1}));
  const QuantizedParameter fits{quantize_weight(at::ones({4, 8}), "w"), WeightReader::linear, {}};
  const auto error = [&](const QuantizedParameters& parameters) {
    return error_of<InputError>([&] { with_quantized(tensors, parameters); });
  };
  TANREN_EXPECT_CONTAINS(error({{"d.weight", fits}}), "d.weight is no tensor of the model");
  TANREN_EXPECT_CONTAINS(error({{"a.weight", fits}}), "b.weight has the numbers of a.weight");
  TANREN_EXPECT_CONTAINS(error({{"c.kernel", fits}}),
                         "c.kernel_input_scale, which belongs to the 8-bit c.kernel");
  const QuantizedParameter turned{quantize_weight(at::ones({8, 4}), "w"), WeightReader::linear, {}};
  TANREN_EXPECT_CONTAINS(error({{"a.weight", turned}, {"b.weight", fits}}),
                         "a.weight has shape [4, 8], its 8-bit weight shape [8, 4]");
  QuantizedParameter bad = fits;
  bad.input = InputScale{0, 128};
  TANREN_EXPECT_CONTAINS(error({{"a.weight", bad}, {"b.weight", fits}}),
                         "a.weight has an input scale 0");
  bad = fits;
  bad.weight.scales = at::zeros({4, 1});
  TANREN_EXPECT_CONTAINS(error({{"a.weight", bad}, {"b.weight", fits}}), "not finite and above 0");
  const TensorMap all = with_quantized(tensors, {{"a.weight", fits}, {"b.weight", fits}});
  EXPECT_EQ(all.size(), tensors.size() + 2);
}

TEST_F(QuantizedFiles, name_what_lies_beside_a_parameter_of_an_own_module) {
  const QuantizedNames root = quantized_names("weight");
  EXPECT_EQ(root.scale, "weight_scale");
  EXPECT_EQ(root.input_scale, "input_scale");
  const QuantizedNames own = quantized_names("a.kernel");
  EXPECT_EQ(own.scale, "a.kernel_scale");
  EXPECT_EQ(own.input_zero_point, "a.kernel_input_zero_point");
  EXPECT_EQ(quantized_names("a.my_weight").input_scale, "a.my_weight_input_scale");
}

TEST_F(QuantizedFiles, initialise_a_model_with_their_expanded_weights) {
  const fs::path file = quantized_bert(), plain = folder_.path() / "run" / kWholeFile;
  const QuantizedParameters parameters = of_bert(read_safetensors(plain).tensors, true);
  const WholeModel model = load_model(plain);
  ModelOptions options = model.config.model;
  const Task fresh = ModelRegistry().make(options, model.info);
  options.init_from = file.string();
  const std::string line = init_from_file(*fresh.module, options).text("q");
  TANREN_EXPECT_CONTAINS(
      line, fmt::format("expanded {} 8-bit weights to fp32 (scheme static)", parameters.size()));
  const auto named = fresh.module->named_parameters();
  for (const auto& [name, parameter] : parameters) {
    EXPECT_TRUE(at::equal(named[name], expand(parameter.weight, at::kFloat))) << name;
  }
  EXPECT_TRUE(at::equal(named[kPositions], model.task.module->named_parameters()[kPositions]));
}

TEST_F(QuantizedFiles, of_a_bert_become_a_folder_for_compressed_tensors) {
  for (const bool is_static : {true, false}) {
    fs::remove_all(folder_.path() / "run");
    const fs::path file = quantized_bert(is_static), out = folder_.path() / "out";
    fs::remove_all(out);
    const PythonFolder made = write_python_folder(file, out, at::kBFloat16, {});
    TANREN_EXPECT_CONTAINS(made.remarks.at(0), "linear layers stay int8, 1 of embeddings");
    const auto config = nlohmann::json::parse(read_file(out / "config.json"));
    EXPECT_EQ(config["dtype"], "bfloat16");
    const auto& quantization = config["quantization_config"];
    EXPECT_EQ(quantization["quant_method"], "compressed-tensors");
    EXPECT_EQ(quantization["format"], "int-quantized");
    EXPECT_EQ(quantization["quantization_status"], "compressed");
    ASSERT_EQ(quantization["config_groups"].size(), 1u);
    const auto& group = quantization["config_groups"]["group_0"];
    EXPECT_EQ(group["targets"], nlohmann::json::array({"Linear"}));
    EXPECT_EQ(group["weights"]["strategy"], "channel");
    EXPECT_EQ(group["input_activations"]["dynamic"], !is_static);
    EXPECT_EQ(group["input_activations"]["symmetric"], !is_static);
    EXPECT_EQ(group["input_activations"]["strategy"], is_static ? "tensor" : "token");
    EXPECT_TRUE(quantization["ignore"].empty());
    const TensorMap tensors = read_safetensors(out / "model.safetensors").tensors;
    const TensorMap from = read_safetensors(file).tensors;
    for (const std::string& name : {kQuery, kQuery + "_scale"}) {
      EXPECT_EQ(tensors.at(name).scalar_type(), from.at(name).scalar_type());
      EXPECT_TRUE(at::equal(tensors.at(name), from.at(name)));
    }
    EXPECT_EQ(tensors.at(kWords).scalar_type(), at::kBFloat16);
    EXPECT_FALSE(tensors.contains(kWords + "_scale"));
    TANREN_EXPECT_CONTAINS(error_of<ConfigError>([&] {
                             ModelOptions options;
                             options.from_hf = out.string();
                             resolve_model(options);
                           }),
                           "has a quantization_config");
  }
}

TEST_F(QuantizedFiles, of_a_bert_whose_inputs_stay_floating_say_so_in_its_folder) {
  const fs::path plain = bert(), out = folder_.path() / "out";
  QuantizedParameters parameters = of_bert(read_safetensors(plain).tensors, false);
  for (auto& [name, parameter] : parameters) parameter.is_weight_alone = true;
  write_python_folder(written(plain, parameters, note_of("weights")), out, {}, {});
  const auto config = nlohmann::json::parse(read_file(out / "config.json"));
  const auto& group = config["quantization_config"]["config_groups"]["group_0"];
  EXPECT_EQ(group["weights"]["strategy"], "channel");
  EXPECT_TRUE(group.contains("input_activations"));
  EXPECT_TRUE(group["input_activations"].is_null());
}

// A layer that stays floating-point is named. If layers are of two kinds, each kind lists its
// layers.
TEST_F(QuantizedFiles, of_a_bert_with_mixed_layers_name_them_in_its_folder) {
  const fs::path plain = bert(), out = folder_.path() / "out";
  QuantizedParameters parameters = of_bert(read_safetensors(plain).tensors, true);
  parameters.erase("classifier.weight");
  parameters.at(kQuery).input.reset();
  write_python_folder(written(plain, parameters, note_of("static")), out, {}, {});
  const auto config = nlohmann::json::parse(read_file(out / "config.json"));
  const auto& quantization = config["quantization_config"];
  EXPECT_EQ(quantization["ignore"], nlohmann::json::array({"classifier"}));
  ASSERT_EQ(quantization["config_groups"].size(), 2u);
  const std::string layer = kQuery.substr(0, kQuery.rfind(".weight"));
  const auto& first = quantization["config_groups"]["group_0"];
  EXPECT_EQ(first["targets"], nlohmann::json::array({layer}));
  EXPECT_EQ(first["input_activations"]["strategy"], "token");
  const auto& second = quantization["config_groups"]["group_1"];
  EXPECT_EQ(second["targets"].size(), parameters.size() - 2);
  EXPECT_EQ(second["input_activations"]["strategy"], "tensor");
}

TEST_F(QuantizedFiles, of_a_gpt2_become_an_fp32_folder_and_say_so) {
  const fs::path plain = gpt2(), out = folder_.path() / "out";
  const SafetensorsFile before = read_safetensors(plain);
  const fs::path file = written(plain, of_gpt2(before.tensors), note_of("dynamic"));
  const PythonFolder made = write_python_folder(file, out, {}, {});
  TANREN_EXPECT_CONTAINS(made.remarks.at(0), "4 8-bit weights are expanded to fp32");
  const TensorMap after = read_safetensors(out / "model.safetensors").tensors;
  ASSERT_EQ(after.size(), before.tensors.size());
  for (const auto& [name, tensor] : before.tensors) {
    EXPECT_EQ(after.at(name).scalar_type(), at::kFloat) << name;
    EXPECT_TRUE(at::allclose(after.at(name), tensor, 0, 0.01)) << name;
  }
}

TEST_F(QuantizedFiles, are_listed_converted_planned_and_refused_on_the_command_line) {
  const fs::path file = quantized_bert();
  const auto tanren = [&](const std::string& arguments) {
    return testing::shell(testing::forked_tanren() + " " + arguments, folder_.path());
  };
  const auto listed = tanren("convert q.tanren.safetensors --list");
  EXPECT_EQ(listed.code, 0) << listed.output;
  TANREN_EXPECT_CONTAINS(listed.output,
                         "scheme static (range mse, 8 samples): 9 weights in 8 bits "
                         "(1 embedding, 8 linear), 1 stay");
  TANREN_EXPECT_CONTAINS(listed.output, kQuery + "  [8, 8]  int8  linear");
  TANREN_EXPECT_CONTAINS(listed.output, kPositions + " stays: narrow reads it");
  TANREN_EXPECT_CONTAINS(tanren("convert q.tanren.safetensors --list --json").output,
                         "\"scheme\": \"static\"");

  const auto converted = tanren("convert q.tanren.safetensors wide.safetensors");
  EXPECT_EQ(converted.code, 0) << converted.output;
  TANREN_EXPECT_CONTAINS(converted.output, "expanded 9 8-bit weights to fp32 (scheme static)");
  const TensorMap wide = read_safetensors(folder_.path() / "wide.safetensors").tensors;
  EXPECT_EQ(wide.at(kQuery).scalar_type(), at::kFloat);
  EXPECT_FALSE(wide.contains(kQuery + "_scale"));

  const auto plan = tanren("plan run/config.toml --set model.init_from=" + file.string());
  EXPECT_EQ(plan.code, 0) << plan.output;
  TANREN_EXPECT_CONTAINS(plan.output, "expanded 9 8-bit weights to fp32");

  SafetensorsFile read = read_safetensors(file);
  read.tensors.set(kQuery + "_scale", at::zeros({8, 1}));
  write_safetensors(folder_.path() / "bad.safetensors", read.tensors, read.metadata);
  const auto bad = tanren("eval bad.safetensors");
  EXPECT_EQ(bad.code, 2) << bad.output;
  TANREN_EXPECT_CONTAINS(bad.output, "has a scale that is not finite and above 0");
}

}  // namespace
}  // namespace tanren
