#include "tanren/checkpoint/weights_file.h"

#include "tanren/base/error.h"
#include "tanren/base/safetensors.h"
#include "tanren/base/testing.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

using testing::TemporaryFolder;

const std::string kPtFixtures = TANREN_SOURCE_DIR "/tests/fixtures/pt/";

TensorMap named(const std::vector<std::string>& names) {
  TensorMap tensors;
  for (size_t i = 0; i < names.size(); ++i) {
    tensors.set(names[i], at::full({2}, static_cast<int64_t>(i)));
  }
  return tensors;
}

std::vector<std::string> names_of(const TensorMap& tensors) {
  std::vector<std::string> names;
  for (const auto& item : tensors) names.push_back(item.first);
  return names;
}

TEST(WeightsFile, an_index_that_does_not_fit_its_files_is_refused) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a.safetensors", named({"x", "y"}));
  const auto error_of = [&](const std::string& json) {
    const auto index = folder.file("m.safetensors.index.json", json);
    return testing::error_of<InputError>([&] { read_weights(index); });
  };
  TANREN_EXPECT_CONTAINS(error_of("{"), "no index of weights");
  TANREN_EXPECT_CONTAINS(error_of(R"({"weight_map": {"x": "a.safetensors"}})"), "tensor y of");
  TANREN_EXPECT_CONTAINS(error_of(R"({"weight_map": {"x": "a.safetensors", "y": "a.safetensors",
                                      "z": "a.safetensors"}})"),
                         "tensor z is in none");
  TANREN_EXPECT_CONTAINS(error_of(R"({"weight_map": {"x": "../a.safetensors"}})"),
                         "another folder");
  TANREN_EXPECT_CONTAINS(error_of(R"({"weight_map": {"x": "b.safetensors"}})"), "b.safetensors");
}

TEST(WeightsFile, several_files_are_one_by_their_index) {
  const TemporaryFolder folder;
  write_safetensors(folder.path() / "a.safetensors", named({"x", "y"}));
  write_safetensors(folder.path() / "b.safetensors", named({"z"}));
  const auto index = folder.file("m.safetensors.index.json",
                                 R"({"weight_map": {"x": "a.safetensors", "y": "a.safetensors",
                                     "z": "b.safetensors"}})");
  const auto file = read_weights(index);
  EXPECT_EQ(file.kind, "2 files by their index");
  EXPECT_EQ(names_of(file.content.tensors), (std::vector<std::string>{"x", "y", "z"}));
}

TEST(StateDict, of_a_training_checkpoint_is_its_model_and_says_so) {
  const auto state = state_dict_of(read_weights(kPtFixtures + "checkpoint.pt"));
  const auto wanted = read_safetensors(kPtFixtures + "model.safetensors").tensors;
  EXPECT_EQ(state.tensors.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) EXPECT_TRUE(at::equal(state.tensors.at(name), tensor));
  ASSERT_EQ(state.remarks.size(), 1u);
  TANREN_EXPECT_CONTAINS(state.remarks[0], "took model");
}

TEST(StateDict, prefixes_that_stand_before_every_name_are_taken_off) {
  const auto parallel = state_dict_of(read_weights(kPtFixtures + "data_parallel.pt"));
  EXPECT_TRUE(parallel.tensors.contains("head.weight"));
  WeightsFile file;
  file.content.tensors = named({"module._orig_mod.a", "module._orig_mod.b"});
  EXPECT_EQ(names_of(state_dict_of(file).tensors), (std::vector<std::string>{"a", "b"}));
  file.content.tensors = named({"module.a", "b"});
  EXPECT_EQ(names_of(state_dict_of(file).tensors), (std::vector<std::string>{"module.a", "b"}));
  EXPECT_TRUE(state_dict_of(file).remarks.empty());
}

TEST(Renamed, refuses_what_fits_nothing_or_makes_one_name_of_two) {
  EXPECT_THROW(renamed(named({"a.x", "b.x"}), {{"c", "d"}}), CheckpointError);
  EXPECT_THROW(renamed(named({"a.x", "b.x"}), {{"a", "b"}}), CheckpointError);
  EXPECT_THROW(renamed(named({"a"}), {{"a", ""}}), CheckpointError);
}

TEST(Renamed, changes_whole_parts_of_names_in_turn) {
  const auto result = renamed(named({"a.x", "ab.x", "c"}), {{"a", "body"}, {"body.x", "y"}});
  EXPECT_EQ(names_of(result), (std::vector<std::string>{"y", "ab.x", "c"}));
  EXPECT_EQ(names_of(renamed(named({"a.b.x"}), {{"a", ""}})), (std::vector<std::string>{"b.x"}));
}

TEST(WriteWeights, chooses_the_format_by_extension_and_refuses_others) {
  const TemporaryFolder folder;
  const auto tensors = named({"a", "b"});
  for (const char* name : {"w.safetensors", "w.pt", "w.bin"}) {
    write_weights(folder.path() / name, tensors);
    EXPECT_EQ(names_of(read_weights(folder.path() / name).content.tensors), names_of(tensors));
  }
  EXPECT_EQ(read_weights(folder.path() / "w.pt").kind, "state_dict");
  EXPECT_THROW(write_weights(folder.path() / "w.onnx", tensors), ConfigError);
}

}  // namespace
}  // namespace tanren
