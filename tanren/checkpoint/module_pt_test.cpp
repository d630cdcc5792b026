// Whole saved modules: torch.save(model) of classes that do not exist here, archives of TorchScript
// and of C++ torch::save. Their tensors must have the names of the state_dict.
#include "tanren/formats/pt_file.h"

#include "tanren/base/testing.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/formats/safetensors.h"

#include <ATen/ATen.h>
#include <torch/serialize/output-archive.h>

namespace tanren::module_pt_test {
namespace {

using testing::TemporaryFolder;

const std::string kFolder = TANREN_SOURCE_DIR "/tests/fixtures/";

// The weights that a model would take from `file` are those of the safetensors file, and no others.
void expect_same(const WeightsFile& file, const std::string& fixture) {
  const TensorMap tensors = state_dict_of(file).tensors;
  const TensorMap wanted = read_safetensors(kFolder + fixture).tensors;
  EXPECT_EQ(tensors.size(), wanted.size());
  for (const auto& [name, tensor] : wanted) {
    const at::Tensor* found = tensors.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_TRUE(at::equal(*found, tensor)) << name;
  }
}

TEST(ModulePt, of_torchvision_has_its_state_dict_with_buffers_and_says_its_class) {
  const auto file = read_weights(kFolder + "pt/torchvision_module.pt");
  EXPECT_EQ(file.kind, "module of class torchvision.models.resnet.ResNet");
  expect_same(file, "pt/torchvision_module.safetensors");
}

TEST(ModulePt, of_transformers_has_its_state_dict_and_says_its_class) {
  const auto file = read_weights(kFolder + "pt/transformers_module.pt");
  EXPECT_EQ(file.kind,
            "module of class transformers.models.bert.modeling_bert.BertForSequenceClassification");
  expect_same(file, "hf/bert/model.safetensors");
}

TEST(ModulePt, prefixes_of_data_parallel_and_compile_come_off_and_are_said) {
  const auto file = read_weights(kFolder + "pt/compiled.pt");
  expect_same(file, "pt/model.safetensors");
  const auto remarks = state_dict_of(file).remarks;
  ASSERT_EQ(remarks.size(), 3u);
  TANREN_EXPECT_CONTAINS(remarks[0], "took state_dict");
  TANREN_EXPECT_CONTAINS(remarks[1], "module.");
  TANREN_EXPECT_CONTAINS(remarks[2], "_orig_mod.");
  const auto parallel = read_weights(kFolder + "pt/data_parallel.pt");
  expect_same(parallel, "pt/model.safetensors");
  ASSERT_EQ(state_dict_of(parallel).remarks.size(), 1u);
}

TEST(ModulePt, of_cpp_torch_save_gives_its_tensors_by_path) {
  const TemporaryFolder folder;
  const auto path = (folder.path() / "cpp.pt").string();
  const at::Tensor weight = at::arange(6, at::kFloat).view({2, 3});
  torch::serialize::OutputArchive archive, layer;
  layer.write("weight", weight);
  layer.write("running_mean", at::ones({3}, at::kDouble), /*is_buffer=*/true);
  archive.write("layer", layer);
  archive.write("step", c10::IValue(int64_t{7}));
  archive.save_to(path);
  const PtFile file = read_pt(path);
  EXPECT_EQ(file.kind, "TorchScript archive");
  EXPECT_EQ(file.content.tensors.size(), 2u);
  EXPECT_TRUE(at::equal(file.content.tensors.at("layer.weight"), weight));
  EXPECT_EQ(file.content.tensors.at("layer.running_mean").scalar_type(), at::kDouble);
  EXPECT_EQ(value_of<int64_t>(file.content, "step"), 7);
}

}  // namespace
}  // namespace tanren::module_pt_test
