// Files for the command-line tests that follow a user's typical day. Torch-free; included by tests.
#pragma once

#include "tanren/base/file.h"
#include "tanren/base/testing.h"
#include "tests/support/child.h"
#include "tests/support/forked.h"
#include "tests/support/png.h"
#include "tests/support/shell.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace tanren::testing {

class DayFiles : public ::testing::Test {
 protected:
  DayFiles() {
    folder_.file("run.toml", csv_config("train.csv", "eval.csv"));
    folder_.file("train.csv", rows(24));
    folder_.file("eval.csv", rows(9));
  }

  // A config of an mlp on tables with two numeric columns and three classes.
  static std::string csv_config(const std::string& train, const std::string& eval) {
    return "[run]\nsteps = 6\nthreads = 1\nseed = 3\n[model]\nkind = \"mlp\"\nhidden = [8]\n"
           "[data.train]\nkind = \"csv\"\npath = \"" +
           train + "\"\n[data.eval]\nkind = \"csv\"\npath = \"" + eval +
           "\"\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n";
  }
  static std::string rows(int count, const std::string& header = "label,a,b\n") {
    std::string text = header;
    for (int i = 0; i < count; ++i) {
      text += std::to_string(i % 3) + "," + std::to_string(i) + ",0.5\n";
    }
    return text;
  }

  // Training and evaluation folders with three images of each of two classes, and a convnet config.
  void make_images() const {
    namespace fs = std::filesystem;
    for (const std::string part : {"train", "eval"}) {
      for (const std::string one : {"cat", "dog"}) {
        fs::create_directories(at(part + "/" + one));
        for (int i = 0; i < 3; ++i) {
          const auto shade = static_cast<uint8_t>(60 * i);
          folder_.file(part + "/" + one + "/" + std::to_string(i) + ".png",
                       make_png(8, one == "cat" ? 200 : 20, shade, 90));
        }
      }
    }
    folder_.file("images.toml",
                 "[run]\nsteps = 4\nthreads = 1\n[model]\nkind = \"convnet\"\nchannels = [4]\n"
                 "[data.train]\nkind = \"images\"\npath = \"train\"\nsize = [8]\n"
                 "[data.eval]\nkind = \"images\"\npath = \"eval\"\nsize = [8]\n"
                 "[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n");
  }
  // Makes the pixels undecodable. Header and end stay valid, because opening checks only those.
  void damage_image(const std::string& name) const {
    std::string bytes = read_file(at(name));
    const size_t pixels = bytes.find("IDAT") + 4;
    bytes.at(pixels + 2) = '\xff';  // an invalid deflate block type
    folder_.file(name, bytes);
  }

  // A table of texts, and the config of an lstm on it.
  void make_texts() const {
    const std::string fixtures = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/";
    folder_.file("texts.csv", "text,label\na b,0\nc,1\nb c,1\na,0\n");
    folder_.file("texts.toml",
                 "[run]\nsteps = 3\nthreads = 1\n[model]\nkind = \"lstm\"\nhidden_size = 6\n"
                 "[data.train]\nkind = \"text_table\"\npath = \"texts.csv\"\ncontext = 12\n"
                 "tokenizer = \"" +
                     fixtures +
                     "uncased.json\"\n[batch]\nglobal_batch = 2\n[precision]\n"
                     "mode = \"fp32\"\n");
  }

  std::filesystem::path at(const std::string& name) const { return folder_.path() / name; }
  ShellResult tanren(const std::string& arguments) const {
    return shell(forked_tanren() + " " + arguments, folder_.path());
  }
  std::string expect(const std::string& arguments, int code,
                     const std::vector<std::string>& parts = {}) const {
    const auto result = tanren(arguments);
    EXPECT_EQ(result.code, code) << arguments << "\n" << result.output;
    for (const auto& part : parts) TANREN_EXPECT_CONTAINS(result.output, part);
    return result.output;
  }
  nlohmann::json json(const std::string& arguments) const {
    const auto result = tanren(arguments + " --json");
    EXPECT_EQ(result.code, 0) << arguments << "\n" << result.output;
    return nlohmann::json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  }

  TemporaryFolder folder_;
};

}  // namespace tanren::testing
