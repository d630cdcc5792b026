#include "tanren/base/error.h"
#include "tanren/base/random.h"
#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"
#include "tanren/data/text/token_test_util.h"
#include "tanren/data/text/token_windows.h"

#include <numeric>

namespace tanren {
namespace {

using testing::counted;
using testing::Ids;
using testing::rows_of;
using testing::TemporaryFolder;
using testing::whole_of;
using testing::Window;
using testing::windows_of;

template <typename Id>
std::string raw(const Ids& ids) {
  const std::vector<Id> narrow(ids.begin(), ids.end());
  return {reinterpret_cast<const char*>(narrow.data()), narrow.size() * sizeof(Id)};
}

std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + data;
}

std::string safetensors(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

Ids counting(int64_t from, int64_t count) {
  Ids ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), from);
  return ids;
}

class Tokens : public ::testing::Test {
 protected:
  SourceOptions options(const std::string& name, const std::string& bytes) const {
    folder_.file(name, bytes);
    return {.kind = "tokens",
            .path = (folder_.path() / name).string(),
            .context = 4,
            .vocab_size = 1000};
  }
  static std::unique_ptr<Dataset> open(const SourceOptions& options) {
    return open_dataset(options, "data.train");
  }
  static std::string error(const SourceOptions& options) {
    return testing::error_of<DataError>([&] { whole_of(*open(options)); });
  }

  TemporaryFolder folder_;
};

TEST_F(Tokens, an_id_past_the_vocabulary_names_file_place_value_and_bound) {
  Ids ids = counting(0, 21);
  ids[12] = 1000;
  const auto bad = options("ids.bin", raw<uint16_t>(ids));
  TANREN_EXPECT_CONTAINS(error(bad),
                         "ids.bin: token 1000 at position 12 is outside the vocabulary [0, 1000)");
  const auto dataset = open(bad);
  EXPECT_EQ(dataset->collate({0, 1}).counts["tokens"], 8) << "windows without it are fine";
  EXPECT_THROW(dataset->collate({2}), DataError) << "its last label";
  EXPECT_THROW(dataset->collate_training({3}, {}), DataError);
  ids[12] = -1;
  TANREN_EXPECT_CONTAINS(error(options("ids.npy", npy("<i4", "21,", raw<int32_t>(ids)))),
                         "token -1 at position 12");
  TANREN_EXPECT_CONTAINS(error(options("long.npy", npy("<i8", "21,", raw<int64_t>(ids)))),
                         "token -1 at position 12");
}

TEST_F(Tokens, an_odd_length_says_what_it_is_no_multiple_of) {
  auto bad = options("ids.bin", raw<uint16_t>(counting(0, 9)) + "x");
  TANREN_EXPECT_CONTAINS(error(bad), "ids.bin has 19 bytes, no whole number of uint16 ids");
  bad.vocab_size = 70000;
  TANREN_EXPECT_CONTAINS(error(bad), "no whole number of uint32 ids");
  bad.dtype = "int64";
  TANREN_EXPECT_CONTAINS(error(bad), "no whole number of int64 ids");
}

TEST_F(Tokens, too_few_and_none_are_refused) {
  TANREN_EXPECT_CONTAINS(error(options("ids.bin", "")), "there are 0 tokens");
  TANREN_EXPECT_CONTAINS(error(options("ids.bin", raw<uint16_t>({1, 2, 3, 4}))),
                         "there are 4 tokens, too few for one window: context = 4 needs 5");
}

TEST_F(Tokens, headers_that_are_cut_off_hostile_or_of_another_type_are_refused) {
  const std::string data = raw<uint16_t>(counting(0, 9));
  const std::string good = R"({"a":{"dtype":"U16","shape":[9],"data_offsets":[0,18]}})";
  const std::pair<std::string, std::string> npys[] = {
      {"text", "is no .npy file"},
      {std::string("\x93NUMPY\x01\x00\xff\xff{}", 12), "ends within its header"},
      {npy("<u2", "10,", data), "its header promises 10 uint16 ids"},
      {npy("<u2", "18446744073709551615,", data), "its header promises"},
      {npy("<u2", "3, 3", data), "another shape than one dimension"},
      {npy("<u2", "", data), "another shape than one dimension"},
      {npy("<f4", "4,", data), "holds values of type <f4"},
      {npy(">u2", "9,", data), "holds values of type >u2"},
      {std::string("\x93NUMPY\x01\x00\x04\x00", 10) + "{}\n ", "a header that is not understood"},
  };
  for (const auto& [bytes, part] : npys) {
    TANREN_EXPECT_CONTAINS(error(options("x.npy", bytes)), part);
  }
  const std::pair<std::string, std::string> others[] = {
      {"text", "is no safetensors file"},
      {std::string(8, '\xff') + data, "is no safetensors file"},
      {safetensors("[]", data), "a header that is not understood"},
      {safetensors("{{", data), "a header that is not understood"},
      {safetensors("{}", data), "holds 0 tensors"},
      {safetensors(R"({"a":{},"b":{}})", data), "holds 2 tensors, none called tokens"},
      {safetensors(R"({"a":{"dtype":3}})", data), "a header that is not understood"},
      {safetensors(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", data), "type F32"},
      {safetensors(R"({"a":{"dtype":"U16","shape":[3,3],"data_offsets":[0,18]}})", data),
       "another shape than one dimension"},
      {safetensors(R"({"a":{"dtype":"U16","shape":[9],"data_offsets":[99,117]}})", data),
       "cut off"},
      {safetensors(R"({"a":{"dtype":"U16","shape":[-1],"data_offsets":[0,18]}})", data),
       "its header promises"},
      {safetensors(good, data.substr(1)), "its header promises 9 uint16 ids"},
  };
  for (const auto& [bytes, part] : others) {
    TANREN_EXPECT_CONTAINS(error(options("x.safetensors", bytes)), part);
  }
  auto wrong = options("x.safetensors", safetensors(good, data));
  wrong.dtype = "uint32";
  TANREN_EXPECT_CONTAINS(error(wrong), "holds uint16 by its header, data.train.dtype says uint32");
}

TEST_F(Tokens, files_of_different_types_are_no_source) {
  folder_.file("a.npy", npy("<u2", "4,", raw<uint16_t>(counting(0, 4))));
  auto mixed = options("b.npy", npy("<i8", "4,", raw<int64_t>(counting(0, 4))));
  mixed.path = folder_.path().string();
  TANREN_EXPECT_CONTAINS(error(mixed), "b.npy holds int64");
}

TEST_F(Tokens, every_format_gives_the_same_windows) {
  const Ids ids = counting(240, 15);
  const auto expected = windows_of({ids}, 4, 4, false);
  const std::string odd_header =
      R"({"__metadata__":{"a":"b"},"tokens":{"dtype":"U16","shape":[15],"data_offsets":[1,31]},)"
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  std::vector<SourceOptions> all = {
      options("16.bin", raw<uint16_t>(ids)),
      options("u2.npy", npy("<u2", "15,", raw<uint16_t>(ids))),
      options("i8.npy", npy("<i8", "15,", raw<int64_t>(ids))),
      options("u1.npy", npy("|u1", "15,", raw<uint8_t>(ids))),
      options("odd.safetensors", safetensors(odd_header, "x" + raw<uint16_t>(ids))),
      options("32.bin", raw<uint32_t>(ids)),
      options("64", raw<int64_t>(ids)),
      options("large.bin", raw<uint32_t>(ids)),
  };
  all[5].dtype = "uint32";
  all[6].dtype = "int64";
  all[7].vocab_size = 65537;
  for (const auto& source : all) {
    EXPECT_EQ(rows_of(whole_of(*open(source))), expected) << source.path;
  }
}

TEST_F(Tokens, an_id_of_16_bits_is_not_read_as_negative) {
  auto source = options("ids.bin", raw<uint16_t>({65535, 65534, 40000, 32768, 7}));
  source.vocab_size = 65536;
  EXPECT_EQ(rows_of(whole_of(*open(source)))[0].inputs, (Ids{65535, 65534, 40000, 32768}));
  source = options("ids32.bin", raw<uint32_t>({16000000, 1, 2, 3, 4}));
  source.vocab_size = 16000001;
  EXPECT_EQ(rows_of(whole_of(*open(source)))[0].inputs.front(), 16000000);
}

TEST_F(Tokens, what_follows_a_documents_end_is_no_target_but_the_end_is) {
  auto source = options("ids.bin", raw<uint16_t>({5, 9, 6, 7, 9, 8, 8, 1, 2}));
  source.document_end = 9;
  const auto collated = open(source)->collate({0, 1});
  EXPECT_EQ(rows_of(collated), (std::vector<Window>{{{5, 9, 6, 7}, {9, -100, 7, 9}},
                                                    {{9, 8, 8, 1}, {-100, 8, 1, 2}}}));
  EXPECT_EQ(collated.counts.at("tokens"), 6);
}

TEST_F(Tokens, opening_does_not_read_the_file) {
  const auto source = options("huge.bin", "");
  std::filesystem::resize_file(source.path, uintmax_t{1} << 40);  // a hole: takes no disk
  const auto dataset = open(source);
  EXPECT_EQ(dataset->size(), (int64_t{1} << 39) / 4);
  EXPECT_EQ(dataset->collate({dataset->size() - 1, 0}).counts["tokens"], 7);
}

// Documents of drawn lengths (some empty), with an end token in between, in drawn windows.
TEST(TokenWindows, equal_windows_made_token_by_token) {
  for (uint64_t round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    uint64_t draws = 0;
    const auto draw = [&](uint64_t bound) {
      return static_cast<int64_t>(random_bits(round, 1, draws++) % bound);
    };
    const int64_t context = 1 + draw(9), stride = 1 + draw(static_cast<uint64_t>(context));
    const int64_t end = draw(2) == 0 ? -1 : 3;
    std::vector<Ids> documents(static_cast<size_t>(1 + draw(6)));
    documents.front() = Ids(static_cast<size_t>(context + 1), 7);
    for (auto& document : documents) {
      for (int64_t i = draw(25); i > 0; --i) document.push_back(draw(9));
    }
    TokenStream stream{.type = TokenType::uint16, .vocab_size = 9, .document_end = end};
    for (const auto& document : documents) {
      const auto bytes = std::make_shared<std::string>(raw<uint16_t>(document));
      stream.pieces.push_back(
          {"document", bytes->data(), static_cast<int64_t>(document.size()), 0, bytes});
    }
    const TokenWindows dataset(stream, context, stride, "data.train");
    for (const bool training : {false, true}) {
      const auto expected = windows_of(documents, context, stride, training, end);
      const auto collated = whole_of(dataset, training);
      EXPECT_EQ(rows_of(collated), expected);
      EXPECT_EQ(collated.counts.at("tokens"), counted(expected));
      EXPECT_EQ(collated.counts.at("samples"), static_cast<double>(expected.size()));
    }
    EXPECT_EQ(whole_of(dataset).counts.at("tokens"),
              counted(windows_of(documents, context, context, false, end)))
        << "overlap changes no count in evaluation";
  }
}

TEST(TokenWindows, an_index_outside_is_refused) {
  const auto bytes = std::make_shared<std::string>("abcdef");
  const TokenWindows dataset({.pieces = {{"f", bytes->data(), 6, 0, bytes}}, .vocab_size = 256}, 2,
                             0, "data.train");
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_THROW(dataset.collate({3}), DataError);
  EXPECT_THROW(dataset.collate_training({-1}, {}), DataError);
  EXPECT_EQ(dataset.collate({}).counts["tokens"], 0);
}

}  // namespace
}  // namespace tanren
