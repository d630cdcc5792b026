#include "tanren/formats/safetensors.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/testing.h"

#include <cstring>
#include <limits>

#include <ATen/ATen.h>

namespace tanren {
namespace {

using testing::TemporaryFolder;

// A file with a hand-made header and `data` bytes; `length`, if given, is a false header size.
std::string raw_safetensors(const std::string& header, size_t data, int64_t length = -1) {
  const auto size = static_cast<uint64_t>(length < 0 ? header.size() : length);
  std::string bytes(sizeof size, '\0');
  std::memcpy(bytes.data(), &size, sizeof size);
  return bytes + header + std::string(data, '\x01');
}

std::string refusal(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto path = folder.file("bad.safetensors", bytes);
  auto error = testing::error_of<DataError>([&] { read_safetensors(path); });
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  TANREN_EXPECT_CONTAINS(error, "bad.safetensors");
  return error;
}

std::string one_tensor(const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
  return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}}";
}

TEST(Safetensors, refuses_a_missing_empty_or_garbage_file) {
  EXPECT_THROW(read_safetensors("/nonexistent.safetensors"), InputError);
  TANREN_EXPECT_CONTAINS(refusal(""), "too short");
  TANREN_EXPECT_CONTAINS(refusal("abc"), "too short");
  TANREN_EXPECT_CONTAINS(refusal(std::string(64, '\xff')), "header is cut off");
  TANREN_EXPECT_CONTAINS(refusal(raw_safetensors("garbage!", 8)), "no JSON object");
  TANREN_EXPECT_CONTAINS(refusal(raw_safetensors("[1, 2]", 8)), "no JSON object");
}

TEST(Safetensors, refuses_a_header_longer_than_the_file) {
  const auto header = one_tensor("F32", "[2]", "[0,8]");
  TANREN_EXPECT_CONTAINS(refusal(raw_safetensors(header, 8, INT64_MAX)), "header is cut off");
  TANREN_EXPECT_CONTAINS(refusal(raw_safetensors(header, 8, 100000)), "header is cut off");
}

// A model with 8-bit weights has an expanded row of NaN in place of each (quantize/replaced.h).
TEST(Safetensors, does_not_write_a_row_of_nan_that_is_expanded) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  const at::Tensor nan = at::full({1, 3}, std::numeric_limits<double>::quiet_NaN());
  TensorMap tensors;
  tensors.set("row", at::ones({1, 3}).expand({2, 3}));
  tensors.set("numbers", nan.repeat({2, 1}));
  tensors.set("one", nan);
  write_safetensors(path, tensors);
  EXPECT_EQ(read_safetensors(path).tensors.size(), 3u);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    tensors.set("w", nan.to(dtype).expand({2, 3}));
    TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] { write_safetensors(path, tensors); }),
                           "w stands for a weight in 8 bits");
    tensors.set("w", nan.to(dtype).as_strided({1, 3}, {0, 1}));  // for a weight of one row
    TANREN_EXPECT_CONTAINS(testing::error_of<InputError>([&] { write_safetensors(path, tensors); }),
                           "w stands for a weight in 8 bits");
  }
  EXPECT_EQ(read_safetensors(path).tensors.size(), 3u);
}

TEST(Safetensors, refuses_hostile_shapes_dtypes_and_offsets) {
  const auto bad = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
    return refusal(raw_safetensors(one_tensor(dtype, shape, offsets), 8));
  };
  TANREN_EXPECT_CONTAINS(bad("F99", "[2]", "[0,8]"), "unknown dtype F99");
  TANREN_EXPECT_CONTAINS(bad("F32", "[-2]", "[0,8]"), "no count");
  TANREN_EXPECT_CONTAINS(bad("F32", "[2.0]", "[0,8]"), "no count");
  TANREN_EXPECT_CONTAINS(bad("F32", "[2]", "[-8,0]"), "no count");
  TANREN_EXPECT_CONTAINS(bad("F32", "[2]", "[8,0]"), "outside the file");
  TANREN_EXPECT_CONTAINS(bad("F32", "[2]", "[0,4000]"), "outside the file");
  TANREN_EXPECT_CONTAINS(bad("F32", "[3]", "[0,8]"), "does not fit its bytes");
  TANREN_EXPECT_CONTAINS(bad("F32", "[4294967296,4294967296]", "[0,8]"), "impossibly large");
  TANREN_EXPECT_CONTAINS(bad("F32", "[0,9223372036854775807,9]", "[0,0]"), "impossibly large");
  TANREN_EXPECT_CONTAINS(bad("F32", "{}", "[0,8]"), "not described");
  TANREN_EXPECT_CONTAINS(bad("F32", "[2]", "[0]"), "not described");
  TANREN_EXPECT_CONTAINS(bad("F32", "[1]", "[0,4]"), "longer than its tensors");
}

TEST(Safetensors, refuses_tensors_that_overlap_leave_gaps_or_share_a_name) {
  const std::string two = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                          R"("b":{"dtype":"F32","shape":[1],"data_offsets":)";
  TANREN_EXPECT_CONTAINS(refusal(raw_safetensors(two + "[0,4]}}", 4)), "tensor b overlaps");
  TANREN_EXPECT_CONTAINS(refusal(raw_safetensors(two + "[8,12]}}", 12)), "leaves a gap");
  const std::string twice = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                            R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  TANREN_EXPECT_CONTAINS(refusal(raw_safetensors(twice, 4)), "tensor a stands in it twice");
}

TEST(Safetensors, refuses_a_file_cut_off_anywhere) {
  const TemporaryFolder folder;
  TensorMap tensors;
  tensors.set("w", at::arange(6, at::kFloat));
  tensors.set("b", at::arange(2, at::kLong));
  const auto path = folder.path() / "whole.safetensors";
  write_safetensors(path, tensors);
  const auto bytes = read_file(path);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto cut = folder.file("cut.safetensors", std::string_view(bytes).substr(0, length));
    EXPECT_THROW(read_safetensors(cut), DataError) << length << " of " << bytes.size();
  }
  EXPECT_THROW(read_safetensors(folder.file("long.safetensors", bytes + "x")), DataError);
}

TEST(Safetensors, refuses_to_write_a_dtype_that_the_format_lacks) {
  const TemporaryFolder folder;
  TensorMap tensors;
  tensors.set("z", at::zeros({2}, at::kComplexDouble));
  const auto error = testing::error_of<DataError>(
      [&] { write_safetensors(folder.path() / "z.safetensors", tensors); });
  TANREN_EXPECT_CONTAINS(error, "tensor z has the dtype ComplexDouble");
  EXPECT_EQ(folder.num_entries(), 0);
}

TEST(Safetensors, every_dtype_shape_order_and_metadata_come_back) {
  const TemporaryFolder folder;
  TensorMap tensors;
  const auto base = at::arange(24).reshape({2, 3, 4});
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                           at::kShort, at::kChar, at::kByte, at::kBool}) {
    tensors.set(std::string("t.") + c10::toString(dtype), base.to(dtype));
  }
  tensors.set("scalar", at::scalar_tensor(3.5));
  tensors.set("empty", at::empty({0, 3}));
  tensors.set("strided", base.to(at::kFloat).permute({2, 0, 1}));
  const auto path = folder.path() / "all.safetensors";
  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "ü"}});

  const auto file = read_safetensors(path);
  EXPECT_EQ(file.metadata, (Metadata{{"format", "pt"}, {"note", "ü"}}));
  ASSERT_EQ(file.tensors.size(), tensors.size());
  auto read = file.tensors.begin();
  for (const auto& [name, tensor] : tensors) {
    EXPECT_EQ(read->first, name);
    EXPECT_EQ(read->second.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(read->second.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(read->second.is_contiguous()) << name;
    EXPECT_TRUE(at::equal(read->second, tensor)) << name;
    ++read;
  }
}

TEST(Safetensors, layout_is_the_published_one) {
  const TemporaryFolder folder;
  TensorMap tensors;
  tensors.set("w", at::arange(3, at::kByte));
  write_safetensors(folder.path() / "w.safetensors", tensors);
  const auto bytes = read_file(folder.path() / "w.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  EXPECT_EQ(size % 8, 0);
  EXPECT_EQ(bytes.substr(8, size).substr(0, 55),
            R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}  )");
  EXPECT_EQ(bytes.substr(8 + size), std::string("\0\1\2", 3));
}

}  // namespace
}  // namespace tanren
