#include "tanren/model/package_manifest.h"
#include "tanren/model/class_name.h"

#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/testing.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <functional>

namespace tanren {
namespace {

using Json = nlohmann::json;

Json whole_manifest() {
  return parse_json(R"({
    "format": "tanren.package", "version": 1, "torch": "2.11.0", "device": "cpu",
    "machine": "x86_64", "processor_flags": ["avx2", "fma"], "precision": "bf16", "class": "Net",
    "multiply_adds": 100, "draws": "", "couples_samples": true,
    "files": {"train.so": "0123456789abcdef", "predict.so": "fedcba9876543210"},
    "sizes": {"batch": {"min": 2, "max": 2147483647, "multiple": 1},
              "tokens": {"min": 8, "max": 64, "multiple": 8}},
    "parameters": [
      {"name": "a.weight", "dtype": "float32", "sizes": [4, 3], "gradient": 2, "frozen": false},
      {"name": "b.weight", "dtype": "float32", "sizes": [4], "gradient": null, "frozen": true}],
    "tied": {"c.weight": "a.weight"},
    "buffers": [{"name": "n.count", "dtype": "int64", "sizes": [], "output": 1}],
    "fields": [
      {"name": "inputs", "dtype": "int64", "sizes": ["batch", "tokens"], "values": [0, 9],
       "ignored": -100},
      {"name": "mask", "dtype": "float32", "sizes": ["batch", 2], "values": null, "ignored": null}],
    "terms": [{"name": "loss", "weight": 0.5, "count": "tokens"}],
    "outputs": 3, "targets": "inputs", "metrics": ["classes"], "classes": 10})");
}

std::string manifest_refusal(const std::function<void(Json&)>& change) {
  Json json = whole_manifest();
  change(json);
  return testing::error_of<ConfigError>(
      [&] { parse_package_manifest(json_text(json), "p/manifest.json"); });
}

TEST(PackageManifest, is_read_whole) {
  const auto manifest = parse_package_manifest(json_text(whole_manifest()), "manifest.json");
  EXPECT_EQ(manifest.class_name, "Net");
  EXPECT_EQ(manifest.float_dtype(), "float32");
  EXPECT_EQ(manifest.ranges.at("tokens").multiple, 8);
  ASSERT_EQ(manifest.parameters.size(), 2u);
  EXPECT_EQ(manifest.parameters[0].gradient, 2);
  EXPECT_FALSE(manifest.parameters[1].gradient);
  EXPECT_TRUE(manifest.parameters[1].is_frozen);
  EXPECT_EQ(manifest.tied.at("c.weight"), "a.weight");
  EXPECT_EQ(manifest.buffers.at(0).output, 1);
  EXPECT_EQ(manifest.fields.at(0).sizes.at(1).name, "tokens");
  EXPECT_EQ(manifest.fields.at(0).values, std::pair(int64_t{0}, int64_t{9}));
  EXPECT_EQ(manifest.fields.at(0).ignored, -100);
  EXPECT_EQ(manifest.fields.at(1).sizes.at(1).number, 2);
  EXPECT_EQ(manifest.terms.at(0).weight, 0.5);
}

// `tanren convert` prints the name as it is.
TEST(PackageManifest, has_a_class_whose_name_steers_no_terminal) {
  for (const char* name : {"Net_2", "Größe", "模型", "\xc2\xa0", "\xe2\x80\xa7", "\xe2\x80\xaf",
                           "\xe2\x81\xa5", "\xe2\x81\xaa", "\xc3\x9b"}) {
    EXPECT_TRUE(is_class_name(name)) << name;
  }
  for (const char* name : {"", "a.b", "a b", "a\x1b[2J", "a\x7f", "a\xc2\x80", "a\xc2\x9b",
                           "a\xc2\x9f", "\xe2\x80\xa8", "\xe2\x80\xaa", "\xe2\x80\xae",
                           "\xe2\x81\xa6", "\xe2\x81\xa9z", "a\xff", "\xc3"}) {
    EXPECT_FALSE(is_class_name(name)) << name;
  }
}

TEST(PackageManifest, is_refused_in_one_line_that_names_the_place) {
  TANREN_EXPECT_CONTAINS(testing::error_of<ConfigError>([] { parse_package_manifest("{", "m"); }),
                         "[model] m: is no JSON");
  TANREN_EXPECT_CONTAINS(testing::error_of<ConfigError>([] { parse_package_manifest("[]", "m"); }),
                         "is no manifest of a package");
  const struct {
    std::function<void(Json&)> change;
    const char* words;
  } cases[] = {
      {[](Json& m) { m["version"] = 7; }, "is of version 7"},
      {[](Json& m) { m.erase("terms"); }, "lacks the key 'terms'"},
      {[](Json& m) { m["colour"] = 1; }, "has the key 'colour'"},
      {[](Json& m) { m["class"] = "a b"; }, "class is no name of a class"},
      {[](Json& m) { m["device"] = "tpu"; }, "device is 'tpu', not one of cpu, cuda"},
      {[](Json& m) { m["files"].erase("train.so"); }, "lack train.so"},
      {[](Json& m) { m["files"]["../x.so"] = "0123456789abcdef"; }, "no file of a package"},
      {[](Json& m) { m["files"]["train.so"] = "0123"; }, "no checksum"},
      {[](Json& m) { m["sizes"].erase("batch"); }, "lack 'batch'"},
      {[](Json& m) { m["sizes"]["tokens"]["min"] = 65; }, "has min above max"},
      {[](Json& m) { m["sizes"]["tokens"]["multiple"] = 65; }, "has no multiple from min to max"},
      {[](Json& m) { m["sizes"]["tokens"]["multiple"] = 0; }, "sizes.tokens.multiple"},
      {[](Json& m) { m["parameters"][0]["gradient"] = 3; }, "is 3, and the graph has 3 outputs"},
      {[](Json& m) { m["parameters"][0]["gradient"] = 1; }, "is 1, which is another tensor's"},
      {[](Json& m) { m["parameters"][0]["gradient"] = 0; }, "is 0, which is another tensor's"},
      {[](Json& m) { m["parameters"][0]["gradient"] = nullptr; }, "outputs are 3, and 2 of them"},
      {[](Json& m) { m["parameters"][1]["gradient"] = 2; }, "is frozen and has a gradient"},
      {[](Json& m) { m["parameters"][1]["name"] = "a.weight"; }, "like another tensor's"},
      {[](Json& m) { m["parameters"][1]["name"] = "a"; }, "as a tensor and as a module"},
      {[](Json& m) { m["parameters"][1]["name"] = "a..b"; }, "has an empty part"},
      {[](Json& m) { m["parameters"][1]["dtype"] = "float64"; }, "whose weights are float32"},
      {[](Json& m) { m["parameters"][1]["dtype"] = "int64"; }, "is no floating one"},
      {[](Json& m) {
         m["parameters"][1]["sizes"] = {1 << 30, 1 << 30, 1 << 30};
       },
       "more elements than there is memory"},
      {[](Json& m) { m["parameters"][1]["sizes"] = {-1}; }, "parameters[1].sizes[0]"},
      {[](Json& m) { m["tied"]["c.weight"] = "d.weight"; }, "which is no parameter"},
      {[](Json& m) { m["fields"][0]["sizes"] = {"tokens"}; }, "do not begin with \"batch\""},
      {[](Json& m) { m["fields"][0]["sizes"][1] = "words"; }, "is none of the sizes"},
      {[](Json& m) { m["fields"][1]["name"] = "inputs"; }, "is another field's too"},
      {[](Json& m) {
         m["fields"][0]["values"] = {9, 0};
       },
       "begin above their end"},
      {[](Json& m) {
         m["fields"][1]["values"] = {0, 1};
       },
       "no indices"},
      {[](Json& m) { m["terms"][0]["weight"] = "much"; }, "is no finite number"},
      {[](Json& m) { m["terms"] = Json::array(); }, "terms are none"},
      {[](Json& m) { m["targets"] = ""; }, "there are no scores"},
      {[](Json& m) { m["targets"] = "labels"; }, "which is no field"},
  };
  for (const auto& item : cases) {
    const std::string text = manifest_refusal(item.change);
    TANREN_EXPECT_CONTAINS(text, item.words);
    EXPECT_EQ(text.rfind("[model] p/manifest.json: ", 0), 0u) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tanren
