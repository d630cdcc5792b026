#include "tanren/checkpoint/weights_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cstring>
#include <filesystem>

namespace tanren {

namespace fs = std::filesystem;

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
  write_safetensors(folder.path() / "b.safetensors", named({"x"}));
  TANREN_EXPECT_CONTAINS(error_of(R"({"weight_map": {"x": "b.safetensors",
                                                     "y": "a.safetensors"}})"),
                         "tensor x is in a.safetensors, too");
  TANREN_EXPECT_CONTAINS(error_of(R"({"weight_map": {"x": "../a.safetensors"}})"),
                         "another folder");
  TANREN_EXPECT_CONTAINS(error_of(R"({"weight_map": {"x": "c.safetensors"}})"), "c.safetensors");
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

// `bytes` of a safetensors file, with blanks after its header's JSON, so that the header has
// `length` bytes.
std::string with_header_of(const std::string& bytes, uint64_t length) {
  uint64_t own = 0;
  std::memcpy(&own, bytes.data(), sizeof own);
  std::string padded(sizeof length, '\0');
  std::memcpy(padded.data(), &length, sizeof length);
  padded += bytes.substr(8, own);
  padded.resize(8 + length, ' ');
  return padded + bytes.substr(8 + own);
}

// Issue 21: a safetensors file begins with its header's length, whose bytes may equal the magic
// bytes of another format.
TEST(WeightsFile, of_safetensors_is_known_whatever_the_length_of_its_header_looks_like) {
  const TemporaryFolder folder;
  const TensorMap tensors = named({"x", "y"});
  write_safetensors(folder.path() / "short.safetensors", tensors);
  const std::string bytes = read_file(folder.path() / "short.safetensors");
  // Lengths whose first bytes are 80 02 (as in torch's pickles), 80 03, 80 04, 80 05, or "PK".
  for (const uint64_t length : {640, 896, 1152, 1408, 19280, 640 + 65536, 19280 + 3 * 65536}) {
    for (const std::string name : {"a.safetensors", "a.bin", "a"}) {
      const auto path = folder.file(name, with_header_of(bytes, length));
      const auto read = read_weights(path);
      EXPECT_EQ(read.kind, "safetensors") << length << " " << name;
      EXPECT_TRUE(at::equal(read.content.tensors.at("y"), tensors.at("y")));
    }
    const std::string cut = with_header_of(bytes, length).substr(0, 100);
    TANREN_EXPECT_CONTAINS(
        testing::error_of<InputError>([&] { read_weights(folder.file("cut.bin", cut)); }),
        "[safetensors]");
  }
}

TEST(WeightsFile, of_a_small_mlp_has_such_a_header) {
  const TemporaryFolder folder;
  TensorMap tensors;
  int64_t in = 64, layer = 0;
  for (const int64_t out : {128, 64, 32}) {
    const std::string name = "hidden." + std::to_string(layer++);
    tensors.set(name + ".weight", at::zeros({out, in}));
    tensors.set(name + ".bias", at::zeros({out}));
    in = out;
  }
  tensors.set("head.weight", at::zeros({10, in}));
  tensors.set("head.bias", at::zeros({10}));
  const auto path = folder.path() / "model.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}});  // as a checkpoint has it
  ASSERT_EQ(read_file(path).substr(0, 2), "\x80\x02");
  EXPECT_EQ(read_weights(path).content.tensors.size(), 8u);
}

TEST(WeightsFile, of_two_letters_or_half_a_magic_is_taken_for_no_archive) {
  const TemporaryFolder folder;
  for (const std::string bytes : {"PK and so on", "PK", "P", ""}) {
    TANREN_EXPECT_CONTAINS(
        testing::error_of<InputError>([&] { read_weights(folder.file("a.safetensors", bytes)); }),
        "[safetensors]");
    TANREN_EXPECT_CONTAINS(
        testing::error_of<InputError>([&] { read_weights(folder.file("a.pt", bytes)); }), "a.pt");
  }
  // The error for a pickle that torch.save did not write reports that, for any file name.
  TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] {
                           read_weights(folder.file("a", "\x80\x04\x95\x0a rest of a pickle"));
                         }),
                         "torch.save did not write it");
}

// Issue 21: for a run that was finished and then continued, the old export was taken.
TEST(RunFolder, stands_for_what_it_exported_until_it_has_gone_on) {
  const TemporaryFolder folder;
  const auto run = folder.path();
  const auto value_of = [&] { return read_weights(run).content.tensors.at("w").item<float>(); };
  const auto remarks_of = [&] { return read_state_dict(run).state.remarks; };
  const auto weights = [](float value) {
    TensorMap tensors;
    tensors.set("w", at::scalar_tensor(value));
    return tensors;
  };
  const auto checkpoint = [&](int64_t step) {
    Snapshot snapshot;
    snapshot.model.tensors = weights(static_cast<float>(step));
    write_checkpoint(run / "checkpoints", step, snapshot, /*keep=*/9);
  };
  const auto exports = [&](const Metadata& metadata) {
    write_safetensors(run / "model.safetensors", weights(0.5), metadata);
  };
  EXPECT_THROW(read_weights(run), CheckpointError);
  checkpoint(9);
  EXPECT_EQ(value_of(), 9);
  EXPECT_TRUE(remarks_of().empty());
  exports({{"step", "9"}, {"run_step", "9"}, {"weights", "averaged"}});
  EXPECT_EQ(value_of(), 0.5);
  EXPECT_TRUE(remarks_of().empty());
  checkpoint(10);
  EXPECT_EQ(value_of(), 10);
  ASSERT_EQ(remarks_of().size(), 1u);
  TANREN_EXPECT_CONTAINS(remarks_of()[0],
                         "took step-10, to which the run went on after its "
                         "model.safetensors of step 9 (its raw weights");
  exports({{"step", "10"}, {"run_step", "10"}});
  EXPECT_EQ(value_of(), 0.5);
  exports({{"step", "4"}, {"run_step", "10"}});  // its best step
  EXPECT_EQ(value_of(), 0.5);
  // An export of the best step from before run_step existed: the run continued if it saved later.
  exports({{"step", "4"}});
  const auto saved = [&](int seconds) {
    fs::last_write_time(
        run / "checkpoints" / "step-10" / "COMPLETE",
        fs::last_write_time(run / "model.safetensors") + std::chrono::seconds(seconds));
  };
  saved(-1);
  EXPECT_EQ(value_of(), 0.5);
  EXPECT_TRUE(remarks_of().empty());
  saved(1);
  EXPECT_EQ(value_of(), 10);
  TANREN_EXPECT_CONTAINS(remarks_of()[0], "took step-10, to which the run went on");
  exports({{"step", "10"}});
  saved(1);
  EXPECT_EQ(value_of(), 0.5);
  // The older of two saves of a step, while the newer one replaces it.
  exports({{"step", "9"}, {"run_step", "9"}});
  fs::rename(run / "checkpoints" / "step-10", run / "checkpoints" / ".tmp-step-10-before");
  EXPECT_EQ(value_of(), 10);
  TANREN_EXPECT_CONTAINS(remarks_of()[0], "took step-10, to which");
  exports({{"format", "pt"}});  // not ours: nothing shows that it is old
  EXPECT_EQ(value_of(), 0.5);
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
