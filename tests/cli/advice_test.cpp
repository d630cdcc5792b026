// Follows the advice of the program's error lines literally; the program must then accept the input
// (issue 22). Each row has the refused input, the advice, and the input changed as advised. Every
// error line that names a key gets a row.
#include "tests/cli/day_files.h"

namespace tanren::testing {
namespace {

class Followed : public DayFiles {
 protected:
  struct Row {
    std::string input, advice, advised;
  };

  // Rows are run in order and may use the files and runs of earlier rows.
  void follow(const std::vector<Row>& rows) const {
    for (const auto& [input, advice, advised] : rows) {
      const auto refused = tanren(input);
      EXPECT_EQ(refused.code, 2) << input << "\n" << refused.output;
      EXPECT_NE(refused.output.find(advice), std::string::npos) << input << "\n" << refused.output;
      const auto taken = tanren(advised);
      EXPECT_EQ(taken.code, 0) << advised << "\n" << taken.output;
    }
  }
};

TEST_F(Followed, about_tables) {
  folder_.file("y.csv", rows(24, "y,a,b\n"));
  folder_.file("five.csv", rows(9) + "4,1,2\n");
  folder_.file("gap.csv", rows(24) + "4,1,2\n");
  folder_.file("half.csv", "label,a,b\n0.5,1,2\n1.5,2,3\n");
  folder_.file("shaped.toml", csv_config("train.csv", "eval.csv"));
  const std::string train = "plan run.toml --set data.train.path=", both = "plan run.toml --set ";
  follow({
      {train + "y.csv", "set data.train.label to one of them",
       train + "y.csv --set data.train.label=y"},
      {both + "data.eval.path=y.csv", "set data.eval.label to one of them",
       both + "data.eval.path=y.csv --set data.eval.label=y"},
      {train + "gap.csv", "set data.train.classes = 5 if so many are meant",
       train + "gap.csv --set data.train.classes=5"},
      {both + "data.eval.path=five.csv", "set data.train.classes or model.outputs",
       both + "data.eval.path=five.csv --set data.train.classes=5"},
      {both + "data.eval.path=five.csv", "set data.train.classes or model.outputs",
       both + "data.eval.path=five.csv --set model.outputs=5"},
      {both + "data.eval.path=five.csv --set data.eval.classes=3 --set data.train.classes=3",
       "set data.train.classes and data.eval.classes = 5",
       both + "data.eval.path=five.csv --set data.train.classes=5 --set data.eval.classes=5"},
      {train + "half.csv --set data.eval.kind= --set data.eval.path=",
       "set data.train.label_type = \"value\" and model.loss = \"mse\"",
       train + "half.csv --set data.eval.kind= --set data.eval.path= --set "
               "data.train.label_type=value --set model.loss=mse"},
      {both + "data.train.label_type=value --set data.eval.label_type=value",
       "does not go with model.loss \"cross_entropy\"; take mse",
       both + "data.train.label_type=value --set data.eval.label_type=value --set model.loss=mse"},
      {both + "data.train.shape=[1,2]", "set data.eval.shape = [1, 2]",
       both + "data.train.shape=[1,2] --set data.eval.shape=[1,2]"},
  });
}

TEST_F(Followed, about_shapes_that_a_model_wants) {
  std::string four = "label,a,b,c,d\n";
  for (int i = 0; i < 24; ++i) four += std::to_string(i % 3) + "," + std::to_string(i) + ",1,2,3\n";
  folder_.file("four.csv", four);
  const std::string with = " --set data.train.path=four.csv --set data.eval.path=four.csv --set ";
  const std::string convnet = "plan run.toml" + with + "model.kind=convnet --set model.channels=4";
  const std::string lstm = "plan run.toml" + with + "model.kind=lstm";
  const std::string vectors = " --set data.train.shape=[4,1] --set data.eval.shape=[4,1]";
  follow({
      {convnet, "set data.train.shape",
       convnet + " --set data.train.shape=[1,2,2] --set data.eval.shape=[1,2,2]"},
      {lstm, "set data.train.shape", lstm + vectors},
      {lstm + vectors + " --set model.task=next_token", "set model.task = \"classify\"",
       lstm + vectors + " --set model.task=classify"},
  });
  make_images();
  const std::string vgg = "plan images.toml --set model.kind=vgg";
  follow(
      {{vgg, "raise data.train.size", vgg + " --set data.train.size=32 --set data.eval.size=32"}});
}

TEST_F(Followed, about_images) {
  make_images();
  const std::string plan = "plan images.toml --set ";
  follow({
      {plan + "data.eval.size=16", "set data.eval.size = [8, 8] and data.eval.channels = 3",
       plan + "data.eval.size=[8,8] --set data.eval.channels=3"},
      {plan + "data.eval.channels=1", "data.eval.channels differs from data.train.channels",
       plan + "data.eval.channels=3"},
  });
  damage_image("eval/dog/1.png");
  follow({{"run images.toml --quiet --out out --set evaluate.batch=2",
           "set data.eval.broken = \"skip\"", "run out --quiet --set data.eval.broken=skip"}});
  folder_.file("eval/dog/1.png", make_png(8, 1, 2, 3));
  // Here evaluations decide. The first one failed on the damaged file, so a repaired file may
  // replace it.
  const std::string judged =
      "run images.toml --quiet --set evaluate.every=2 --set evaluate.batch=2 --set "
      "checkpoint.best=1 --out ";
  damage_image("eval/dog/1.png");
  expect(judged + "first", 2, {"or fix or remove it"});
  folder_.file("eval/dog/1.png", make_png(16, 1, 2, 3));
  expect("run first --quiet", 0, {"data.eval is other data after step 2"});
  // Step 2 was judged with this file: a different file needs another run, or may decide nothing.
  ASSERT_EQ(tanren(judged + "off --set run.stop_after=2").code, 0);
  for (const char* copy : {"fixed", "skipped"}) {
    std::filesystem::copy(at("off"), at(copy), std::filesystem::copy_options::recursive);
  }
  const std::string sound = read_file(at("eval/dog/1.png"));
  folder_.file("eval/dog/1.png", make_png(8, 1, 2, 3));
  follow({{"run off --quiet", "set checkpoint.best = 0, so that none decides",
           "run off --quiet --set checkpoint.best=0"}});
  expect("run skipped --quiet", 2,
         {"put these data back (where one is damaged: with data.eval.broken = \"skip\")"});
  folder_.file("eval/dog/1.png", sound);
  damage_image("eval/dog/1.png");
  follow({{"run skipped --quiet", "set data.eval.broken = \"skip\"",
           "run skipped --quiet --set data.eval.broken=skip"}});
  folder_.file("eval/dog/1.png", sound);
  expect("run fixed --quiet", 0);
  // Images that are damaged between two sessions, before they were read.
  ASSERT_EQ(tanren("run images.toml --quiet --out more --set run.stop_after=1 --set data.workers=0 "
                   "--set data.prefetch=1")
                .code,
            0);
  for (const char* name : {"cat/0", "cat/1", "cat/2", "dog/0", "dog/1"}) {
    damage_image("train/" + std::string(name) + ".png");
  }
  follow({{"run more --quiet", "set data.train.broken = \"skip\"",
           "run more --quiet --set data.train.broken=skip"}});
}

TEST_F(Followed, about_texts) {
  make_texts();
  folder_.file("latin.csv", "text,label\na b,0\ncaf\xe9,1\n");
  folder_.file("named.csv", "words,kind\na b,0\nc,1\n");
  const std::string plan = "plan texts.toml --set data.train.path=";
  follow({
      {plan + "latin.csv", "set data.encoding = \"latin-1\"",
       plan + "latin.csv --set data.encoding=latin-1"},
      {plan + "named.csv --set data.train.label=kind", "set data.train.text to one of them",
       plan + "named.csv --set data.train.label=kind --set data.train.text=words"},
      {plan + "named.csv --set data.train.text=words", "set data.train.label to one of them",
       plan + "named.csv --set data.train.label=kind --set data.train.text=words"},
      {"plan texts.toml --set model.task=next_token", "set model.task = \"classify\"",
       "plan texts.toml --set model.task=classify"},
      {"plan texts.toml --set data.train.context=2", "raise it",
       "plan texts.toml --set data.train.context=3"},
  });
  ASSERT_EQ(tanren("run texts.toml --quiet --out out").code, 0);
  // The data given to `eval` of a whole model take the place of data.eval.
  const std::string eval = "eval out/model.tanren.safetensors named.csv";
  follow({{eval, "set data.eval.text to one of them",
           eval + " --set data.eval.text=words --set data.eval.label=kind"},
          {eval + " --set data.eval.text=words", "set data.eval.label to one of them",
           eval + " --set data.eval.text=words --set data.eval.label=kind"}});
}

TEST_F(Followed, about_tokens_and_trained_models) {
  std::string ids;
  for (int i = 0; i < 200; ++i) ids += {static_cast<char>(i % 23), '\0'};
  folder_.file("ids.bin", ids);
  folder_.file("tokens.toml",
               "[run]\nsteps = 2\nthreads = 1\n[model]\nkind = \"gpt2\"\nnum_layers = 1\n"
               "num_heads = 2\nhidden_size = 8\ncontext_length = 10\n[data.train]\n"
               "kind = \"tokens\"\npath = \"ids.bin\"\nvocab_size = 23\ncontext = 12\n"
               "[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n");
  folder_.file("trained.toml",
               "[run]\nsteps = 2\nthreads = 1\n[model]\nfrom_hf = \"" TANREN_SOURCE_DIR
               "/tests/fixtures/hf/gpt2\"\n[data.train]\nkind = \"tokens\"\npath = \"ids.bin\"\n"
               "vocab_size = 23\ncontext = 12\n[batch]\nglobal_batch = 4\n[precision]\n"
               "mode = \"fp32\"\n");
  const std::string plan = "plan tokens.toml --set ";
  follow({
      {"plan tokens.toml", "raise model.context_length, or set data.train.context = 10",
       plan + "model.context_length=12"},
      {"plan tokens.toml", "raise model.context_length, or set data.train.context = 10",
       plan + "data.train.context=10"},
      {"plan trained.toml", "these weights have no more positions: set data.train.context = 10",
       "plan trained.toml --set data.train.context=10"},
      {plan + "data.train.context=10 --set model.vocab_size=20", "set model.vocab_size = 0",
       plan + "data.train.context=10 --set model.vocab_size=0"},
      {plan + "data.train.context=1000 --set model.context_length=1000",
       "lower data.train.context or give more data", plan + "data.train.context=9"},
      {plan +
           "data.train.context=10 --set data.eval.kind=tokens --set data.eval.path=ids.bin --set "
           "data.eval.vocab_size=23 --set data.eval.context=12 --set model.context_length=12",
       "set data.eval.context = 10",
       plan +
           "data.train.context=10 --set data.eval.kind=tokens --set data.eval.path=ids.bin --set "
           "data.eval.vocab_size=23 --set data.eval.context=10"},
  });
}

TEST_F(Followed, about_runs_that_go_on) {
  ASSERT_EQ(tanren("run run.toml --quiet --out out").code, 0);
  ASSERT_EQ(tanren("run run.toml --quiet --out early --set evaluate.every=1 --set "
                   "early_stop.patience=1 --set optimizer.learning_rate=1e-30")
                .code,
            0);
  folder_.file(
      "alone.toml",
      csv_config("train.csv", "").substr(0, csv_config("train.csv", "").find("[data.eval]")));
  ASSERT_EQ(tanren("run alone.toml --quiet --out alone").code, 0);
  folder_.file("five.csv", rows(9) + "4,1,2\n");
  folder_.file("fixed.csv", rows(9) + "2,1,2\n");
  ASSERT_EQ(tanren("run run.toml --quiet --out begun --set run.stop_after=2").code, 0);
  const std::string outputs =
      "data.eval has 5 classes, and the model has 3 outputs; fix its labels, or leave out";
  follow({
      {"run begun --quiet --set data.eval.path=five.csv", outputs,
       "run begun --quiet --set run.stop_after=1 --set data.eval.path=fixed.csv"},
      {"run begun --quiet --set data.eval.path=five.csv", outputs,
       "run begun --quiet --set run.stop_after=1 --set data.eval.path=eval.csv"},
      {"eval out/model.tanren.safetensors five.csv", outputs,
       "eval out/model.tanren.safetensors fixed.csv"},
      {"eval out --set data.eval.path=five.csv", outputs,
       "eval out --set data.eval.path=fixed.csv"},
  });
  // Turns off the keys that let evaluations decide.
  struct Deciding {
    std::string folder, on, advice, off;
  };
  for (const auto& [folder, on, advice, off] : std::vector<Deciding>{
           {"best", "checkpoint.best=1", "set checkpoint.best = 0", "checkpoint.best=0"},
           {"patient", "early_stop.patience=9", "set early_stop.patience = 0",
            "early_stop.patience=0"},
           {"both", "checkpoint.best=1 --set early_stop.patience=9",
            "set checkpoint.best = 0 and early_stop.patience = 0",
            "checkpoint.best=0 --set early_stop.patience=0"}}) {
    ASSERT_EQ(tanren("run run.toml --quiet --out " + folder +
                     " --set evaluate.every=1 --set run.stop_after=2 --set " + on)
                  .code,
              0);
    const std::string other = "run " + folder + " --quiet --set data.eval.path=fixed.csv";
    follow({{other, advice + ", so that none decides", other + " --set " + off}});
  }
  // A schedule cannot be turned off in this way: the run would continue with the initial learning
  // rate.
  ASSERT_EQ(tanren("run run.toml --quiet --out flat --set evaluate.every=1 --set run.stop_after=2 "
                   "--set schedule.kind=reduce_on_plateau")
                .code,
            0);
  const std::string stuck = expect("run flat --quiet --set data.eval.path=fixed.csv", 2,
                                   {"; either put these data back, or start another run"});
  EXPECT_EQ(stuck.find("none decides"), std::string::npos) << stuck;
  follow({
      {"eval out --set evaluate.checkpoint=step-77", "name one that it has in evaluate.checkpoint",
       "eval out --set evaluate.checkpoint=step-6"},
      {"eval alone", "add it, or set data.eval.kind",
       "eval alone --set data.eval.kind=csv --set data.eval.path=eval.csv"},
      {"eval out/model.tanren.safetensors", "name a file or folder of kind csv",
       "eval out/model.tanren.safetensors eval.csv"},
      {"run out", "raise run.steps or run.epochs", "run out --quiet --set run.steps=7"},
      {"run early --set run.steps=20", "raise early_stop.patience (0: off)",
       "run early --quiet --set early_stop.patience=0 --set run.steps=20"},
      {"run out --out new",
       "tanren run out/config.toml --out new, with its weights: --set "
       "model.init_from=out",
       "run out/config.toml --quiet --out new --set model.init_from=out"},
  });
}

TEST_F(Followed, about_memory) {
  const std::string plan = "plan run.toml --set memory.limit=";
  const auto refused = tanren(plan + "1KB");
  const std::string before = "the smallest limit that works: memory.limit = \"";
  const auto found = refused.output.find(before);
  ASSERT_NE(found, std::string::npos) << refused.output;
  const std::string limit = refused.output.substr(found + before.size());
  follow({{plan + "1KB", before, plan + limit.substr(0, limit.find('"'))}});
}

TEST_F(Followed, about_the_config_itself) {
  const std::string plan = "plan run.toml --set ";
  follow({
      {plan + "run.epochs=2", "--set run.epochs=none takes it back", plan + "run.epochs=none"},
      {plan + "evaluate.metrics=f1", "f1_macro", plan + "evaluate.metrics=accuracy,f1_macro"},
      {plan + "checkpoint.best=1", "evaluate.every",
       plan + "checkpoint.best=1 --set evaluate.every=2"},
      {plan + "batch.microbatch=9", "lower it", plan + "batch.microbatch=4"},
      {plan + "model.label_smoothing=0.1 --set model.loss=mse", "model.loss = \"cross_entropy\"",
       plan + "model.label_smoothing=0.1 --set model.loss=cross_entropy"},
      {plan + "data.last=drop --set batch.global_batch=100", "lower it or keep the last",
       plan + "data.last=keep --set batch.global_batch=100"},
      {plan + "early_stop.patience=1", "set evaluate.every",
       plan + "early_stop.patience=1 --set evaluate.every=2"},
      {plan + "schedule.kind=multi_step", "schedule.milestones is empty; name the updates",
       plan + "schedule.kind=multi_step --set schedule.milestones=2,4"},
      {plan + "optimizer.layers=hidden.{}.*", "optimizer.layer_decay is 1; lower that",
       plan + "optimizer.layers=hidden.{}.* --set optimizer.layer_decay=0.9"},
      {plan + "run.name=a/b", "give it no slash", plan + "run.name=a-b"},
      {plan + "parallel.replicas=2", "for parallel.ranks \"processes\"; drop it",
       plan + "run.threads=1"},
      {plan + "learning_rate=0.1", "optimizer.learning_rate", plan + "optimizer.learning_rate=0.1"},
  });
  // The line that does not parse, and the advised line that replaces it in the file.
  struct Line {
    std::string broken, advice, fixed;
  };
  for (const auto& [broken, advice, fixed] : std::vector<Line>{
           {"[run]\nname = bare", "texts need quotes: name = \"bare\"", "[run]\nname = \"bare\""},
           {"[data]\nshuffle = True", "write shuffle = true", "[data]\nshuffle = true"},
           {"[evaluate]\nmetrics = accuracy, f1_macro", "metrics = [\"accuracy\", \"f1_macro\"]",
            "[evaluate]\nmetrics = [\"accuracy\", \"f1_macro\"]"},
           {"[evaluate]\nevery = None", "takes a whole number; give that, or leave the line out",
            "[evaluate]\nevery = 2"},
           {"[evaluate]\nevery = None", "or leave the line out", "[evaluate]"}}) {
    const std::string sound = csv_config("train.csv", "eval.csv");
    const auto file = [&](const std::string& lines) {  // adds to an existing section
      std::string text = sound;
      const std::string section = lines.substr(0, lines.find('\n'));
      const auto place = text.find(section + "\n");
      if (place == std::string::npos) return text + lines + "\n";
      return text.replace(place, section.size(), lines);
    };
    folder_.file("broken.toml", file(broken));
    folder_.file("fixed.toml", file(fixed));
    follow({{"plan broken.toml", advice, "plan fixed.toml"}});
  }
}

}  // namespace
}  // namespace tanren::testing
