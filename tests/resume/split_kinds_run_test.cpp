// Runs of images and of text whose evaluation data are a part of training's source (issue 26).
#include "tests/cli/day_files.h"

namespace tanren::testing {
namespace {

class SplitKindsRun : public DayFiles {
 protected:
  void train(const std::string& config) const {
    const auto result = tanren("run " + config + " --quiet --out out");
    ASSERT_EQ(result.code, 0) << result.output;
  }
  void refuse(const std::string& arguments, const std::vector<std::string>& parts) const {
    const std::string output = expect(arguments, 2, parts);
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  }
};

TEST_F(SplitKindsRun, of_images_is_evaluated_on_its_part_or_on_all_of_a_folder) {
  make_images();
  folder_.file("split.toml",
               "[run]\nsteps = 4\nthreads = 1\n[model]\nkind = \"convnet\"\nchannels = [4]\n"
               "[data]\nsplit = 0.34\n[data.train]\nkind = \"images\"\npath = \"train\"\n"
               "size = [8]\nflip = 0.5\n[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n");
  train("split.toml");
  const auto part = json("eval out --predictions part.csv");
  EXPECT_EQ(part["samples"], 2);
  EXPECT_EQ(json("eval out eval")["samples"], 6);
  EXPECT_EQ(json("eval out train")["samples"], 6);
  const std::string table = read_file(at("part.csv"));
  EXPECT_TRUE(table.starts_with("row,name,target,label,score\n")) << table;
  TANREN_EXPECT_CONTAINS(table, ",cat/");
  TANREN_EXPECT_CONTAINS(table, ".png,dog,");

  std::filesystem::rename(at("train/cat/0.png"), at("train/cat/7.png"));
  refuse("eval out", {"[eval] file names of data.", "name a file to evaluate on"});
  EXPECT_EQ(json("eval out train")["samples"], 6);
  std::filesystem::rename(at("train/cat/7.png"), at("train/cat/0.png"));
  EXPECT_EQ(json("eval out"), part);
}

TEST_F(SplitKindsRun, of_text_is_evaluated_on_its_part_or_on_all_of_a_file) {
  std::string text;
  for (int i = 0; i < 1001; ++i) text += static_cast<char>('a' + i * i % 23);
  folder_.file("a.txt", text);
  folder_.file("b.txt", text.substr(0, 301));
  folder_.file("text.toml",
               "[run]\nsteps = 4\nthreads = 1\n[model]\nkind = \"lstm\"\ntask = \"next_token\"\n"
               "hidden_size = 8\n[data]\nsplit = 0.1\n[data.train]\nkind = \"text\"\n"
               "path = \"a.txt\"\ncontext = 10\n[batch]\nglobal_batch = 4\n[precision]\n"
               "mode = \"fp32\"\n");
  train("text.toml");
  const auto part = json("eval out");
  EXPECT_EQ(part["samples"], 10);  // of the last 101 tokens
  EXPECT_EQ(json("eval out a.txt")["samples"], 100);
  EXPECT_EQ(json("eval out b.txt")["samples"], 30);
  EXPECT_EQ(json("eval out a.txt --set 'data.train.part=[0, 0.5]'")["samples"], 50);

  folder_.file("a.txt", text.substr(0, 901));  // its end was trained on
  refuse("eval out", {"[eval] ", " of data.train", "put these data back, or name a file"});
  folder_.file("a.txt", text);
  EXPECT_EQ(json("eval out"), part);
}

}  // namespace
}  // namespace tanren::testing
