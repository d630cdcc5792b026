#include "tanren/data/data_part.h"

#include "tanren/base/testing.h"
#include "tanren/data/dataset.h"
#include "tanren/data/image/image_test_util.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>

#include <map>
#include <set>

namespace tanren {
namespace {

namespace fs = std::filesystem;

using NameSet = std::set<std::string>;

std::map<std::string, uint64_t> parts_of(const SourceOptions& options) {
  std::map<std::string, uint64_t> parts;
  for (const auto& part : open_dataset(options, "data.train")->parts())
    parts[part.name] = part.hash;
  return parts;
}

// The names of the parts that differ between two sets.
NameSet differing(const std::map<std::string, uint64_t>& one,
                  const std::map<std::string, uint64_t>& other) {
  NameSet names;
  for (const auto* both : {&one, &other}) {
    for (const auto& [name, hash] : *both) {
      const auto a = one.find(name), b = other.find(name);
      if (a == one.end() || b == other.end() || a->second != b->second) names.insert(name);
    }
  }
  return names;
}

class DataPartOf : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  void put(const std::string& name, std::string_view bytes) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    folder_.file(name, bytes);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(DataPartOf, a_tensor_tells_type_shape_and_every_byte) {
  const at::Tensor base = at::arange(24, at::kFloat);
  const uint64_t hash = part_of("x", base).hash;
  EXPECT_EQ(part_of("x", base.clone()).hash, hash);
  EXPECT_NE(part_of("x", base.to(at::kDouble)).hash, hash);
  EXPECT_NE(part_of("x", base.view({4, 6})).hash, hash);
  EXPECT_NE(part_of("x", base.view({4, 6}).t()).hash, part_of("x", base.view({6, 4})).hash);
  at::Tensor other = base.clone();
  other[23] = 0;
  EXPECT_NE(part_of("x", other).hash, hash);
}

TEST_F(DataPartOf, a_large_tensor_is_looked_at_from_its_first_byte_to_its_last) {
  constexpr int64_t kBytes = (int64_t{65} << 20) + 13;
  const at::Tensor zeros = at::zeros({kBytes}, at::kByte);
  const uint64_t hash = part_of("x", zeros).hash;
  for (const int64_t place : {int64_t{0}, kBytes - 1}) {
    at::Tensor other = zeros.clone();
    other[place] = 1;
    EXPECT_NE(part_of("x", other).hash, hash) << place;
  }
  at::Tensor half = zeros.clone();
  half.narrow(0, kBytes / 2, int64_t{1} << 17).fill_(1);
  EXPECT_NE(part_of("x", half).hash, hash);
}

TEST_F(DataPartOf, texts_tells_where_each_ends) {
  EXPECT_NE(part_of("x", std::vector<std::string>{"ab", "c"}).hash,
            part_of("x", std::vector<std::string>{"a", "bc"}).hash);
}

TEST_F(DataPartOf, csv_tells_inputs_from_labels_and_knows_no_path) {
  const auto of = [&](const std::string& name, const std::string& bytes) {
    put(name, bytes);
    return parts_of({.kind = "csv", .path = path(name), .label = "label"});
  };
  const auto base = of("a.csv", "label,a\n0,1\n1,2\n");
  EXPECT_EQ(of("elsewhere/b.csv", "label,a\n0,1\n1,2\n"), base);
  EXPECT_EQ(differing(base, of("a.csv", "label,a\n0,1\n1,3\n")), NameSet{"inputs"});
  EXPECT_EQ(differing(base, of("a.csv", "label,a\n1,1\n0,2\n")), NameSet{"labels"});
}

TEST_F(DataPartOf, tensors_tells_each_field_and_which_there_are) {
  const auto of = [&](const TensorMap& fields) {
    write_safetensors(path("a.safetensors"), fields);
    return parts_of({.kind = "tensors", .path = path("a.safetensors")});
  };
  TensorMap fields;
  fields.set("inputs", at::arange(12, at::kFloat).view({4, 3}));
  fields.set("labels", at::arange(4, at::kLong));
  const auto base = of(fields);
  TensorMap more = fields;
  more.set("weights", at::ones({4}));
  EXPECT_EQ(differing(base, of(more)), (NameSet{"field names", "weights"}));
  fields.set("labels", at::arange(4, at::kLong).flip(0));
  EXPECT_EQ(differing(base, of(fields)), NameSet{"labels"});
}

TEST_F(DataPartOf, images_tells_names_sizes_and_labels_below_the_folder) {
  for (int i = 0; i < 3; ++i) {
    put("all/cat/" + std::to_string(i) + ".jpg", testing::make_jpeg(20 + i, 20));
    put("all/dog/" + std::to_string(i) + ".jpg", testing::make_jpeg(30 + i, 20));
  }
  const auto of = [&](const std::string& name) {
    return parts_of({.kind = "images", .path = path(name), .size = {8}});
  };
  const auto base = of("all");
  fs::rename(path("all"), path("moved"));
  EXPECT_EQ(of("moved"), base);
  fs::rename(path("moved/cat/2.jpg"), path("moved/dog/9.jpg"));
  EXPECT_EQ(differing(base, of("moved")), (NameSet{"file names", "file sizes", "labels"}));
  fs::rename(path("moved/dog/9.jpg"), path("moved/cat/2.jpg"));
  put("moved/cat/2.jpg", testing::make_jpeg(50, 50));
  EXPECT_EQ(differing(base, of("moved")), NameSet{"file sizes"});
  put("moved/cat/2.jpg", testing::make_jpeg(22, 20));
  fs::rename(path("moved/dog"), path("moved/bee"));
  EXPECT_EQ(differing(base, of("moved")),
            (NameSet{"class names", "file names", "file sizes"}));  // sorted by folder names
}

TEST_F(DataPartOf, tokens_tells_names_and_sizes_of_a_folders_files) {
  const auto of = [&](const std::string& name) {
    return parts_of({.kind = "tokens", .path = path(name), .context = 4, .vocab_size = 100});
  };
  put("ids/a.bin", std::string(40, '\0'));
  put("ids/b.bin", std::string(60, '\0'));
  const auto base = of("ids");
  fs::rename(path("ids"), path("moved"));
  EXPECT_EQ(of("moved"), base);
  fs::rename(path("moved/a.bin"), path("moved/c.bin"));
  EXPECT_EQ(differing(base, of("moved")),
            (NameSet{"file names", "file sizes"}));  // in another order
  // If the path names one file, its name is a location and does not count.
  const auto one = of("moved/b.bin");
  fs::rename(path("moved/b.bin"), path("d.bin"));
  EXPECT_EQ(of("d.bin"), one);
  put("d.bin", std::string(62, '\0'));
  EXPECT_EQ(differing(one, of("d.bin")), NameSet{"file sizes"});
}

TEST_F(DataPartOf, text_tells_contents_that_lie_in_memory) {
  const auto of = [&](const std::string& bytes) {
    put("a.txt", bytes);
    return parts_of({.kind = "text", .path = path("a.txt"), .context = 4});
  };
  const auto base = of("some text");
  EXPECT_EQ(differing(base, of("some tent")), NameSet{"contents"});
  const std::string large(int64_t{1} << 20, 'a');  // mapped: not read when it is opened
  std::string other = large;
  other.back() = 'b';
  EXPECT_EQ(of(large), of(other));
}

TEST_F(DataPartOf, text_table_tells_texts_labels_and_names_of_classes) {
  const std::string vocabulary = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/vocab.txt";
  const auto of = [&](const std::string& bytes) {
    put("a.csv", bytes);
    return parts_of(
        {.kind = "text_table", .path = path("a.csv"), .context = 16, .tokenizer = vocabulary});
  };
  const auto base = of("text,label\na b,no\nc,yes\n");
  EXPECT_EQ(differing(base, of("text,label\na b,no\na,yes\n")), NameSet{"texts"});
  EXPECT_EQ(differing(base, of("text,label\na b,yes\nc,no\n")), NameSet{"labels"});
  EXPECT_EQ(differing(base, of("text,label\na b,no\nc,you\n")), NameSet{"class names"});
}

}  // namespace
}  // namespace tanren
