// Hostile .pt files: each must be refused with one line, in little memory and time.
#include "tanren/formats/pt_file.h"

#include "tanren/base/error.h"
#include "tanren/base/testing.h"
#include "tanren/formats/zip_test_util.h"

#include <ATen/ATen.h>

namespace tanren::hostile {
namespace {

using testing::TemporaryFolder;

// The error of reading a file that holds `pickle` and storage 0 of 64 bytes.
std::string refusal(const std::string& pickle) {
  const TemporaryFolder folder;
  const auto path = folder.file(
      "x.pt", testing::zip_of({{"a/data.pkl", pickle}, {"a/data/0", std::string(64, '\1')}}));
  auto error = testing::error_of<CheckpointError>([&] { read_pt(path); });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  EXPECT_LT(error.size(), 1000u);
  return error;
}

std::string text(const std::string& value) {
  const auto size = static_cast<uint32_t>(value.size());
  return "X" + std::string(reinterpret_cast<const char*>(&size), sizeof size) + value;
}
std::string integer(int64_t value) {
  return "\x8a\x08" + std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string memo(int index) { return std::string("h") + static_cast<char>(index); }
std::string put(int index) { return std::string("q") + static_cast<char>(index); }

const std::string kShape = "(" + integer(2) + integer(2) + "t";

struct Facts {
  std::string storage = "FloatStorage", key = "0";
  int64_t numel = 16, offset = 0;
  std::string size = kShape, stride = kShape;
  std::string view;  // of a storage: none, or key, offset and size of the part
};

// A tensor as torch.save writes it.
std::string tensor(const Facts& facts) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" + facts.storage +
         "\n" + text(facts.key) + text("cpu") + integer(facts.numel) + facts.view + "tQ" +
         integer(facts.offset) + facts.size + facts.stride + "\x89NtR";
}
std::string dict(const std::string& items) { return "}(" + items + "u."; }

TEST(HostilePt, by_hand_is_read_where_it_is_honest) {
  const TemporaryFolder folder;
  const auto path =
      folder.file("x.pt", testing::zip_of({{"a/data.pkl", dict(text("w") + tensor({}))},
                                           {"a/data/0", std::string(64, '\1')}}));
  EXPECT_EQ(read_pt(path).content.tensors.at("w").sizes(), at::IntArrayRef({2, 2}));
}

TEST(HostilePt, tensors_never_leave_their_storage) {
  const auto bad = [](const Facts& facts) { return refusal(dict(text("w") + tensor(facts))); };
  TANREN_EXPECT_CONTAINS(bad({.numel = 17}), "storage 0 holds 16 elements, not 17");
  TANREN_EXPECT_CONTAINS(bad({.key = "../0"}), "storage ../0 is missing");
  TANREN_EXPECT_CONTAINS(bad({.numel = -1}), "malformed");
  TANREN_EXPECT_CONTAINS(bad({.offset = 14}), "reaches element");
  TANREN_EXPECT_CONTAINS(bad({.offset = -1}), "malformed");
  TANREN_EXPECT_CONTAINS(bad({.offset = INT64_MAX}), "absurd");
  TANREN_EXPECT_CONTAINS(bad({.stride = "(" + integer(INT64_MAX) + integer(INT64_MAX) + "t"}),
                         "absurd");
  TANREN_EXPECT_CONTAINS(bad({.stride = "(" + integer(-2) + integer(1) + "t"}), "negative");
  TANREN_EXPECT_CONTAINS(bad({.size = "(" + integer(int64_t{1} << 40) + integer(1) + "t",
                              .stride = "(" + integer(0) + integer(0) + "t"}),
                         "larger than its storage");
  TANREN_EXPECT_CONTAINS(bad({.size = "(" + integer(1) + "t"}), "malformed");
  TANREN_EXPECT_CONTAINS(bad({.storage = "Quantised\tStorage"}), "dtype");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += integer(1);
  TANREN_EXPECT_CONTAINS(bad({.size = many + "t", .stride = many + "t"}), "64 dimensions");
}

// A file as torch.save wrote it before 1.0, with storage 0: the floats 0, 1, …, 15.
std::string before_1_0(const std::string& document) {
  const std::string magic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  std::string file = magic + integer(1001) + ".}." + document + "]" + text("0") + "a.";
  const int64_t count = 16;
  file.append(reinterpret_cast<const char*>(&count), sizeof count);
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i);
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return file;
}

// issue 21
TEST(HostilePt, a_part_of_a_storage_begins_at_its_offset_and_ends_at_its_end) {
  const TemporaryFolder folder;
  const auto part = [](int64_t offset, int64_t size) {
    return "(" + text("v") + integer(offset) + integer(size) + "t";
  };
  const auto read = [&](const Facts& facts) {
    const auto path = folder.file("old.pt", before_1_0(dict(text("w") + tensor(facts))));
    return read_pt(path).content.tensors.at("w").contiguous();
  };
  const std::string pair = "(" + integer(2) + "t", apart = "(" + integer(1) + "t";
  const at::Tensor found = read({.offset = 3, .size = pair, .stride = apart, .view = part(8, 5)});
  EXPECT_TRUE(at::equal(found, at::tensor({11.0F, 12.0F}))) << found;
  const auto error = testing::error_of<CheckpointError>(
      [&] { read({.offset = 4, .size = pair, .stride = apart, .view = part(8, 5)}); });
  TANREN_EXPECT_CONTAINS(error, "reaches element 5 of a storage of 5");
  testing::error_of<CheckpointError>(
      [&] { read({.size = pair, .stride = apart, .view = part(14, 5)}); });
}

TEST(HostilePt, shapes_that_hold_themselves_end) {
  // A torch.Size whose only argument is itself.
  const std::string cycle = "ctorch\nSize\n]" + put(9) + "R" + put(8) + memo(9) + memo(8) + "a0";
  TANREN_EXPECT_CONTAINS(refusal(dict(text("w") + tensor({.size = cycle}))), "shape");
}

TEST(HostilePt, values_that_double_at_each_level_are_refused) {
  std::string bomb = "]" + put(0);
  for (int i = 0; i < 40; ++i) {
    bomb += "]" + put(i + 1) + "(" + memo(i) + memo(i) + "e";
  }
  TANREN_EXPECT_CONTAINS(refusal(bomb + "."), "far larger than it");
  // Empty texts as keys: no name grows, so the limit on the number of values must end the walk.
  std::string nameless = "}" + put(0);
  for (int i = 0; i < 40; ++i) {
    nameless += "}" + put(i + 1) + "(" + text("") + memo(i) + text("") + memo(i) + "u";
  }
  TANREN_EXPECT_CONTAINS(refusal(nameless + "."), "million values");
}

TEST(HostilePt, nesting_beyond_every_model_is_refused) {
  TANREN_EXPECT_CONTAINS(refusal(std::string(5000, ']') + std::string(4999, 'a') + "."), "64 deep");
}

TEST(HostilePt, long_texts_that_are_recalled_again_and_again_are_refused) {
  const std::string key = text(std::string(1 << 16, 'k')) + put(1) + "0";
  std::string values;
  for (int i = 0; i < 3000; ++i) values += integer(i) + memo(1);
  TANREN_EXPECT_CONTAINS(refusal(key + dict(values)), "texts together");
  std::string names;
  for (int i = 0; i < 3000; ++i) names += memo(1) + memo(1) + "\x93" + "0";
  TANREN_EXPECT_CONTAINS(refusal(key + names + "N."), "absurd names");
}

TEST(HostilePt, one_storage_a_thousand_times_over_is_refused) {
  const std::string wide = "(" + integer(1024) + integer(1024) + "t";
  const std::string none = "(" + integer(0) + integer(0) + "t";
  std::string items;
  for (int i = 0; i < 100; ++i) {
    items += text("w" + std::to_string(i)) + tensor({.size = wide, .stride = none});
  }
  TANREN_EXPECT_CONTAINS(refusal(dict(items)), "repeat their storages");
}

TEST(HostilePt, names_with_line_ends_stay_on_one_line) {
  refusal(dict(text("a\nb") + tensor({}) + text("a\nb") + tensor({})));
  refusal("cevil\nname\n" + text("x\ny") + text("z\nz") + "\x93" + "Nb.");
}

}  // namespace
}  // namespace tanren::hostile
