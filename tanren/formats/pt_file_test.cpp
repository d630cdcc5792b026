#include "tanren/formats/pt_file.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tanren/formats/pickle.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>

namespace tanren {
namespace {

using testing::TemporaryFolder;

const std::string kFixtures = TANREN_SOURCE_DIR "/tests/fixtures/pt/";

std::string pickle_error(const std::string& bytes) {
  auto error = testing::error_of<CheckpointError>([&] { read_pickle(bytes, "[checkpoint] x.pt"); });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  return error;
}

void expect_tensors(const TensorMap& found, const std::string& prefix, const std::string& fixture) {
  for (const auto& [name, wanted] : read_safetensors(kFixtures + fixture).tensors) {
    const at::Tensor* tensor = found.find(prefix + name);
    ASSERT_NE(tensor, nullptr) << prefix + name;
    EXPECT_EQ(tensor->scalar_type(), wanted.scalar_type()) << name;
    EXPECT_TRUE(at::equal(*tensor, wanted)) << name;
  }
}

TEST(Pickle, of_an_unknown_opcode_or_an_empty_stack_is_refused_with_the_byte) {
  TANREN_EXPECT_CONTAINS(pickle_error("\x80\x02\xff."), "at byte 3");
  TANREN_EXPECT_CONTAINS(pickle_error("."), "stack is empty");
  TANREN_EXPECT_CONTAINS(pickle_error("(R."), "stack is empty");
  TANREN_EXPECT_CONTAINS(pickle_error("h\x05."), "recalls");
  TANREN_EXPECT_CONTAINS(pickle_error("N(u."), "no container");
  TANREN_EXPECT_CONTAINS(pickle_error("X\xff\xff\xff\xff"), "ends too early");
  TANREN_EXPECT_CONTAINS(pickle_error(""), "ends too early");
}

TEST(Pickle, bombs_of_values_and_of_references_are_refused) {
  TANREN_EXPECT_CONTAINS(pickle_error(std::string(3'000'000, ']')), "2 million values");
  std::string twenty_million;
  twenty_million.resize(20'000'000, 'N');
  TANREN_EXPECT_CONTAINS(pickle_error(twenty_million), "16 million references");
}

TEST(Pickle, a_call_is_a_record_of_its_name_and_runs_nothing) {
  const std::string call("cposix\nsystem\nX\x04\x00\x00\x00true\x85R.", 26);
  const Pickle pickle = read_pickle(call, "x");
  const auto& root = pickle.at(pickle.root);
  ASSERT_EQ(root.kind, PickleKind::object);
  EXPECT_EQ(pickle.at(root.items[0]).text, "posix.system");
}

TEST(Pickle, numbers_of_every_width_and_sign_are_read) {
  const auto integer = [](const std::string& bytes) {
    const Pickle pickle = read_pickle(bytes, "x");
    return pickle.at(pickle.root).integer;
  };
  EXPECT_EQ(integer("K\xff."), 255);
  EXPECT_EQ(integer("J\xff\xff\xff\xff."), -1);
  EXPECT_EQ(integer("\x8a\x02\xff\x7f."), 32767);
  EXPECT_EQ(integer("\x8a\x01\x80."), -128);
  EXPECT_EQ(integer(std::string("\x8a\x00.", 3)), 0);
  EXPECT_EQ(integer("I-17\n."), -17);
  const Pickle real = read_pickle(std::string("G\x3f\xe0\x00\x00\x00\x00\x00\x00.", 10), "x");
  EXPECT_EQ(real.at(real.root).real, 0.5);
}

TEST(Pickle, lists_that_hold_themselves_and_deep_nesting_end) {
  const TemporaryFolder folder;
  const Pickle cycle = read_pickle(
      "]q\x01h\x01"
      "a.",
      "x");
  EXPECT_EQ(cycle.at(cycle.root).items, std::vector<uint32_t>{cycle.root});
  std::string deep(100'000, '(');
  deep += std::string(100'000, 't') + ".";
  EXPECT_EQ(read_pickle(deep, "x").nodes.size(), 100'001u);
}

TEST(PtFile, of_each_format_gives_the_tensors_of_every_dtype_and_layout) {
  for (const char* name : {"state_dict.pt", "legacy.pt", "protocol4.pt"}) {
    SCOPED_TRACE(name);
    const PtFile file = read_pt(kFixtures + name);
    EXPECT_EQ(file.kind, "state_dict");
    expect_tensors(file.content.tensors, "", "state_dict.safetensors");
    EXPECT_TRUE(file.opaque.empty());
  }
}

TEST(PtFile, tied_tensors_share_memory_and_strides_are_kept) {
  const PtFile file = read_pt(kFixtures + "state_dict.pt");
  const auto& tensors = file.content.tensors;
  EXPECT_TRUE(tensors.at("weight").is_alias_of(tensors.at("tied")));
  EXPECT_TRUE(tensors.at("weight").is_alias_of(tensors.at("transposed")));
  EXPECT_EQ(tensors.at("transposed").strides(), at::IntArrayRef({1, 6}));
  EXPECT_TRUE(tensors.at("channels_last").is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(PtFile, tensors_outlive_the_file_and_may_be_written_without_changing_it) {
  const TemporaryFolder folder;
  const std::string bytes = read_file(kFixtures + "state_dict.pt");
  const std::string path = folder.file("copy.pt", bytes);
  const at::Tensor weight = read_pt(path).content.tensors.at("weight");
  const at::Tensor before = weight.clone();
  at::Tensor(weight).add_(1);
  EXPECT_EQ(read_file(path), bytes);
  std::filesystem::remove(path);
  EXPECT_TRUE(at::equal(weight, before + 1));
}

TEST(PtFile, of_a_training_checkpoint_has_paths_and_plain_values) {
  const PtFile file = read_pt(kFixtures + "checkpoint.pt");
  EXPECT_EQ(file.kind, "checkpoint");
  expect_tensors(file.content.tensors, "model.", "model.safetensors");
  EXPECT_EQ(value_of<int64_t>(file.content, "epoch"), 7);
  EXPECT_EQ(value_of<double>(file.content, "best"), 0.5);
  EXPECT_EQ(value_of<std::string>(file.content, "name"), "small");
  EXPECT_FALSE(value_of<bool>(file.content, "done"));
  EXPECT_EQ(value_of<double>(file.content, "optimizer.param_groups.0.lr"), 0.25);
  EXPECT_TRUE(file.content.tensors.contains("optimizer.state.0.exp_avg"));
}

TEST(PtFile, of_a_whole_module_or_a_torchscript_archive_has_the_names_of_its_state_dict) {
  const PtFile module = read_pt(kFixtures + "module.pt");
  TANREN_EXPECT_CONTAINS(module.kind, "module of class");
  TANREN_EXPECT_CONTAINS(module.kind, "Small");
  expect_tensors(module.content.tensors, "", "model.safetensors");
  EXPECT_FALSE(module.content.tensors.contains("scratch"));
  const PtFile script = read_pt(kFixtures + "torchscript.pt");
  EXPECT_EQ(script.kind, "TorchScript archive");
  expect_tensors(script.content.tensors, "", "model.safetensors");
}

TEST(PtFile, that_is_something_else_is_refused_in_one_line) {
  const TemporaryFolder folder;
  for (const char* bytes :
       {"", "hello", "PK", "PK\x05\x06 and then nothing that a zip would hold"}) {
    const auto path = folder.file("odd.pt", bytes);
    const auto error = testing::error_of<CheckpointError>([&] { read_pt(path); });
    TANREN_EXPECT_CONTAINS(error, "odd.pt");
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
  testing::error_of<InputError>([&] { read_pt(folder.path() / "absent.pt"); });
  testing::error_of<InputError>([&] { read_pt(folder.path()); });
}

TEST(PtFile, written_comes_back_bitwise_with_tied_tensors_stored_once) {
  const TemporaryFolder folder;
  TensorMap tensors = read_pt(kFixtures + "state_dict.pt").content.tensors;
  tensors.set("u16", at::ones({3}, at::kUInt16));
  tensors.set("large", at::rand({64, 1024}));
  tensors.set("large_tied", tensors.at("large"));
  const auto path = folder.path() / "out.pt";
  write_pt(path, tensors);
  EXPECT_LT(std::filesystem::file_size(path), 64 * 1024 * 4 + 20'000);
  const PtFile file = read_pt(path);
  EXPECT_EQ(file.kind, "state_dict");
  ASSERT_EQ(file.content.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(at::equal(file.content.tensors.at(name), tensor)) << name;
  }
  EXPECT_TRUE(file.content.tensors.at("large").is_alias_of(file.content.tensors.at("large_tied")));
}

TEST(PtFile, that_cannot_be_written_leaves_nothing_behind) {
  const TemporaryFolder folder;
  TensorMap tensors;
  tensors.set("quantised", at::empty({2}, at::kQInt8));
  EXPECT_THROW(write_pt(folder.path() / "out.pt", tensors), CheckpointError);
  EXPECT_EQ(folder.num_entries(), 0u);
}

// Reads a damaged file to its last element; any error must be a CheckpointError.
void expect_sound_or_refused(const std::string& path) {
  try {
    const PtFile file = read_pt(path);
    for (const auto& [name, tensor] : file.content.tensors) tensor.clone();
  } catch (const CheckpointError&) {
  }
}

TEST(PtFile, cut_off_anywhere_or_with_any_damaged_byte_never_reads_outside) {
  const TemporaryFolder folder;
  for (const char* name : {"state_dict.pt", "legacy.pt", "module.pt"}) {
    const std::string whole = read_file(kFixtures + name);
    for (size_t size = 0; size < whole.size(); size += 23) {
      expect_sound_or_refused(folder.file("cut.pt", whole.substr(0, size)));
    }
    for (size_t at = 0; at < whole.size(); at += 5) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (at % 3 == 0   ? 0xff
                                                     : at % 3 == 1 ? 0x01
                                                                   : 0x80));
      expect_sound_or_refused(folder.file("damaged.pt", damaged));
    }
  }
}

TEST(PtFile, on_a_full_disk_is_one_error_and_leaves_nothing_behind) {
  const TemporaryFolder folder;
  TensorMap tensors;
  for (const char* name : {"a", "b", "c"}) tensors.set(name, at::rand({64, 64}));
  const auto path = folder.path() / "whole.pt";
  write_pt(path, tensors);
  const auto size = std::filesystem::file_size(path);
  std::filesystem::remove(path);
  // The disk is full at the first byte, within each part, and at the last byte of the zip's
  // directory.
  const std::vector<uintmax_t> limits{0, 100, size / 4, size / 2, size - 200, size - 1};
  for (const auto limit : limits) {
    const testing::FullDiskScope full(limit);
    const auto error = testing::error_of<DiskError>([&] { write_pt(path, tensors); });
    TANREN_EXPECT_CONTAINS(error, "whole.pt");
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << limit;
  }
}

}  // namespace
}  // namespace tanren
