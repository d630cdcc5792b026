// Problems that a user met in a day with the command line (issue 22), each with its command.
#include "tests/cli/day_files.h"

#include <algorithm>
#include <sstream>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

// The address sanitizer allocates more memory than the program requests.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kHasShadow = true;
#else
constexpr bool kHasShadow = false;
#endif

class Day : public DayFiles {};

TEST_F(Day, a_damaged_image_of_the_last_evaluation_costs_the_evaluation_alone) {
  make_images();
  damage_image("eval/dog/1.png");
  // (Not in the first batch, which is rehearsed before the first step.)
  expect("run images.toml --quiet --out out --set evaluate.batch=2", 2,
         {"eval/dog/1.png", "data.eval.broken = \"skip\""});
  ASSERT_TRUE(fs::exists(at("out/checkpoints/step-4/COMPLETE")));
  expect("run out --quiet --set data.eval.broken=skip", 0, {"1.png"});
  const auto summary = nlohmann::json::parse(read_file(at("out/summary.json")));
  EXPECT_EQ(summary["steps"], 4);
  EXPECT_TRUE(summary["final_loss"].is_number() && summary["final_loss"] != 0) << summary;
}

TEST_F(Day, a_damaged_image_of_an_evaluation_on_the_way_is_met_behind_a_checkpoint) {
  make_images();
  damage_image("eval/cat/2.png");
  // (Batches of two images, so that the first batch, which is rehearsed at start, is valid.)
  expect("run images.toml --quiet --out out --set evaluate.every=2 --set evaluate.batch=2", 2,
         {"eval/cat/2.png", "[train] step 2 is saved; its evaluation failed and is owed"});
  ASSERT_TRUE(fs::exists(at("out/checkpoints/step-2/COMPLETE")));
  folder_.file("eval/cat/2.png", make_png(8, 1, 2, 3));
  expect("run out --quiet --set data.eval.broken=skip", 0);
  const std::string log = read_file(at("out/log.jsonl"));
  const auto owed = log.find("{\"evaluation\"");
  ASSERT_NE(owed, std::string::npos);
  EXPECT_LT(owed, log.find("{\"attempt\":3")) << "it comes before the next update";
}

TEST_F(Day, sizes_are_checked_before_anything_of_the_model_is_there) {
  for (const std::string verb : {"plan", "run"}) {
    Child child({"/bin/sh", "-c",
                 "cd '" + folder_.path().string() + "' && exec " + TANREN_BINARY + " " + verb +
                     " run.toml --set run.device=cpu --set model.hidden=[20000,20000] --set "
                     "memory.limit=500MB"});
    EXPECT_EQ(child.ended(seconds(300)), 2) << child.text();
    TANREN_EXPECT_CONTAINS(child.text(), "[plan] memory.limit 477 MiB is less than a step needs");
    if (!kHasShadow) {
      EXPECT_LT(child.peak_bytes(), int64_t{1} << 30) << "the weights alone are 1.6 GB";
    }
    // Too large for any machine.
    Child huge({"/bin/sh", "-c",
                "cd '" + folder_.path().string() + "' && exec " + TANREN_BINARY + " " + verb +
                    " run.toml --set run.device=cpu --set model.hidden=[1000000,1000000]"});
    EXPECT_EQ(huge.ended(seconds(300)), 2) << huge.text();
    // Under AddressSanitizer no limit is planned.
    TANREN_EXPECT_CONTAINS(huge.text(),
                           kHasShadow ? "parameters are" : "is less than a step needs");
    if (!kHasShadow) {
      EXPECT_LT(huge.peak_bytes(), int64_t{1} << 30);
    }
    // Without a limit, as on an accelerator, the host must still hold the weights.
    Child unlimited({"/bin/sh", "-c",
                     "cd '" + folder_.path().string() + "' && exec " + TANREN_BINARY + " " + verb +
                         " run.toml --set run.device=cpu --set memory.limit=none --set "
                         "model.hidden=[1000000,1000000]"});
    EXPECT_EQ(unlimited.ended(seconds(300)), 2) << unlimited.text();
    TANREN_EXPECT_CONTAINS(unlimited.text(), "of weights, and this machine has");
  }
  EXPECT_FALSE(fs::exists(at("runs")));
}

TEST_F(Day, recompute_costs_the_same_products_in_every_format_and_precision) {
  folder_.file("resnet.toml",
               "[run]\nsteps = 2\nthreads = 1\n[model]\nkind = \"resnet\"\nsize = \"resnet18\"\n"
               "[data.train]\nkind = \"synthetic\"\nsamples = 16\n"
               "fields = [\"inputs: float[3,64,64] in [-1, 1]\", \"labels: int[] in [0, 4]\"]\n"
               "[batch]\nglobal_batch = 8\n");
  for (const std::string kind : {"resnet", "vgg --set model.size=vgg11_bn"}) {
    std::vector<std::string> costs;
    for (const std::string mode : {"fp32", "bf16"}) {
      for (const std::string format : {"contiguous", "channels_last"}) {
        const auto plan =
            json("plan resnet.toml --set precision.mode=" + mode + " --set model.kind=" + kind +
                 (kind == "resnet" ? " --set model.size=resnet18" : "") +
                 " --set model.memory_format=" + format);
        for (const auto& other : plan["memory"]["alternatives"]) {
          if (other["what"] == "memory.recompute = [\"*\"]") costs.push_back(other["cost"]);
        }
      }
    }
    ASSERT_EQ(costs.size(), 4u) << kind;
    for (const auto& cost : costs) EXPECT_EQ(cost, costs[0]) << kind;
    EXPECT_GE(std::stoi(costs[0]), 20) << costs[0];  // %; nearly one forward of three
  }
}

TEST_F(Day, a_resume_at_the_last_step_knows_the_loss_of_the_last_update) {
  const auto whole = json("run run.toml --out whole");
  ASSERT_EQ(tanren("run run.toml --quiet --out out").code, 0);
  // As if killed between the last checkpoint and the end.
  fs::remove(at("out/summary.json"));
  const std::string text = expect("run out", 0, {"finished: 6 steps, loss "});
  EXPECT_EQ(text.find("loss 0,"), std::string::npos) << text;
  const auto summary = nlohmann::json::parse(read_file(at("out/summary.json")));
  EXPECT_EQ(summary["final_loss"], whole["final_loss"]);
  fs::remove(at("out/summary.json"));
  fs::remove(at("out/log.jsonl"));
  const auto unknown = json("run out");
  EXPECT_TRUE(unknown["final_loss"].is_null()) << unknown;
}

TEST_F(Day, a_folder_with_a_config_alone_may_run_into_another_folder) {
  fs::create_directory(at("mine"));
  fs::copy_file(at("run.toml"), at("mine/config.toml"));
  for (const char* name : {"train.csv", "eval.csv"}) {
    fs::copy_file(at(name), at("mine") / name);
  }
  expect("run mine --quiet --out new", 0);
  EXPECT_TRUE(fs::exists(at("new/summary.json")));
  EXPECT_FALSE(fs::exists(at("mine/log.jsonl")));
}

TEST_F(Day, a_run_folder_into_another_folder_is_refused_and_says_how_to_begin_there) {
  ASSERT_EQ(tanren("run run.toml --quiet --out out --set run.stop_after=2").code, 0);
  expect("run out --quiet --out new", 2,
         {"[run] out resumes in its own folder", "from step 0 in new",
          "tanren run out/config.toml --out new", "--set model.init_from=out"});
  EXPECT_EQ(expect("plan out --out new", 2), expect("run out --quiet --out new", 2));
  EXPECT_FALSE(fs::exists(at("new")));
  expect("plan out --out ./out", 0);
  expect("run out --quiet --out ./out --set run.stop_after=1", 0);
  expect("run out/config.toml --quiet --out new --set model.init_from=out", 0);
}

TEST_F(Day, a_plan_of_a_run_folder_refuses_what_its_run_refuses) {
  ASSERT_EQ(tanren("run run.toml --quiet --out out --set run.stop_after=2").code, 0);
  folder_.file("other.csv", rows(23));
  for (const std::string set :
       {"model.hidden=[9]", "optimizer.weight_decay=0.5", "data.train.path=other.csv"}) {
    const std::string refused = expect("run out --set " + set, 2);
    EXPECT_EQ(expect("plan out --set " + set, 2), refused);
  }
  expect("plan out --set optimizer.learning_rate=0.5", 0, {"changed at step 2: 0.001 → 0.5"});
  ASSERT_EQ(tanren("run out --quiet").code, 0);
  expect("plan out", 0);  // also of a finished run
}

TEST_F(Day, how_a_run_is_evaluated_may_change_on_the_way) {
  folder_.file("more.csv", rows(12));
  ASSERT_EQ(tanren("run run.toml --quiet --out whole").code, 0);
  ASSERT_EQ(tanren("run run.toml --quiet --out out --set run.stop_after=2").code, 0);
  expect(
      "run out --quiet --set evaluate.every=3 --set evaluate.metrics=f1_macro,accuracy --set "
      "run.stop_after=2",
      0);
  expect("run out --quiet --set data.eval.path=more.csv", 0,
         {"data.eval is other data after step 4"});
  const auto last = nlohmann::json::parse(read_file(at("out/summary.json")));
  EXPECT_TRUE(last.contains("evaluate.f1_macro"));
  EXPECT_EQ(last["final_loss"],
            nlohmann::json::parse(read_file(at("whole/summary.json")))["final_loss"]);
  const std::string log = read_file(at("out/log.jsonl"));
  EXPECT_NE(log.find("\"step\":3,\"samples\":9"), std::string::npos) << log;
  EXPECT_NE(log.find("\"step\":6,\"samples\":12"), std::string::npos) << log;
  // If evaluations make decisions, their settings belong to the run …
  const std::string judged = " --quiet --out judged --set evaluate.every=1 --set checkpoint.best=1";
  ASSERT_EQ(tanren("run run.toml" + judged + " --set run.stop_after=2").code, 0);
  expect("run judged --quiet --set evaluate.every=2", 2, {"evaluate.every: 1 → 2"});
  expect("run judged --quiet --set data.eval.path=more.csv", 2, {"12 samples of data.eval"});
  // … unless none has been made yet.
  const std::string early = " --quiet --out early --set evaluate.every=3 --set checkpoint.best=1";
  ASSERT_EQ(tanren("run run.toml" + early + " --set run.stop_after=2").code, 0);
  expect(
      "run early --quiet --set data.eval.path=more.csv", 0,
      {"data.eval is other data after step 2: evaluations cannot be compared with those before"});
}

TEST_F(Day, another_kind_of_model_leaves_keys_of_the_file_out_and_says_so) {
  make_images();
  const std::string text = expect(
      "plan images.toml --set model.kind=resnet --set data.train.size=32 --set "
      "data.eval.size=32",
      0,
      {"[config] model.channels of the file is left out: it has no meaning for --set "
       "model.kind=resnet"});
  EXPECT_EQ(text.find("error"), std::string::npos);
  expect("plan images.toml --set model.kind=resnet --set model.channels=[4]", 2,
         {"model.channels has no meaning for model.kind \"resnet\""});
}

TEST_F(Day, a_label_far_off_is_refused_and_every_plan_says_how_many_classes_there_are) {
  TANREN_EXPECT_CONTAINS(json("plan run.toml")["classes"]["value"].get<std::string>(), "3");
  folder_.file("far.csv", rows(24) + "999999,1,2\n");
  expect("run run.toml --set data.train.path=far.csv --out out", 2,
         {"far.csv: the largest label is 999999", "999996 of these 1000000 classes have no sample",
          "(the first of them: 3)", "data.train.classes = 1000000"});
  folder_.file("gap.csv", rows(24) + "4,1,2\n");
  expect("run run.toml --set data.train.path=gap.csv --out out", 2, {"1 of these 5 classes"});
  EXPECT_FALSE(fs::exists(at("out")));
  make_images();
  expect("plan images.toml", 0, {"from 0: cat, dog; samples of one: 3"});
  make_texts();
  expect("plan texts.toml", 0, {"numbered from 0; samples of one: 2"});
}

TEST_F(Day, text_that_is_not_utf_8_is_refused_by_line_and_byte) {
  make_texts();
  const std::string latin = "text,label\na b,0\ncaf\xe9,1\nb c,1\na,0\n";
  folder_.file("texts.csv", latin);
  expect("run texts.toml --quiet --out out", 2,
         {"texts.csv:3: byte 4 (0xE9) is no UTF-8", "data.encoding = \"latin-1\""});
  folder_.file("texts.csv", std::string("text,label\na b,0\nc\0d,1\n", 23));
  expect("run texts.toml --quiet --out out", 2, {"texts.csv:3: byte 2 is 0"});
  std::string wide = "\xff\xfe";
  for (const char c : std::string("text,label\na b,0\nc,1\n")) wide += {c, '\0'};
  folder_.file("texts.csv", wide);
  expect("run texts.toml --quiet --out out", 2, {"texts.csv is UTF-16"});
  folder_.file("wide.csv", wide);
  expect("run run.toml --quiet --out out --set data.train.path=wide.csv", 2, {"is UTF-16"});
  EXPECT_FALSE(fs::exists(at("out")));
  folder_.file("texts.csv", latin);
  expect("run texts.toml --quiet --out out --set data.encoding=latin-1", 0);
  // The encoding is stored in the run and in its whole-model file.
  expect("run out --quiet --set run.steps=4", 0);
  expect("eval out/model.tanren.safetensors texts.csv --quiet", 0);
  // A run that has begun accepts the key too.
  make_texts();
  expect("run texts.toml --quiet --out begun --set run.stop_after=1", 0);
  expect("run begun --quiet --set data.encoding=latin-1", 0);
  // The bad byte is found before any ids are written.
  folder_.file("book.txt", latin);
  expect("convert book.txt ids.bin --tokenizer " TANREN_SOURCE_DIR
         "/tests/fixtures/tokenizer/bpe.json",
         2, {"[convert] book.txt:3: byte 4 (0xE9) is no UTF-8", "iconv -c -f UTF-8 -t UTF-8"});
  EXPECT_FALSE(fs::exists(at("ids.bin")));
}

TEST_F(Day, classes_keep_their_names_and_eval_shows_their_scores) {
  make_images();
  ASSERT_EQ(tanren("run images.toml --quiet --out out --set "
                   "evaluate.metrics=accuracy,f1_macro,confusion_matrix")
                .code,
            0);
  for (const std::string what : {"out", "out/model.tanren.safetensors eval"}) {
    expect("eval " + what, 0, {"| target \\ prediction | cat | dog |", "| class |", "precision"});
    const auto evaluated = json("eval " + what);
    EXPECT_EQ(evaluated["classes"][0]["name"], "cat");
    EXPECT_EQ(evaluated["classes"][1]["name"], "dog");
  }
  const auto file = nlohmann::json::parse(read_file(at("out/evaluation.json")));
  EXPECT_EQ(file["classes"][1]["name"], "dog");
}

TEST_F(Day, a_class_whose_name_is_no_utf_8_leaves_all_json_sound) {
  make_images();
  for (const std::string part : {"train/", "eval/"}) {
    fs::rename(at(part + "dog"), at(part + "caf\xe9"));
  }
  ASSERT_EQ(tanren("run images.toml --quiet --out out --set "
                   "evaluate.metrics=accuracy,f1_macro,confusion_matrix")
                .code,
            0);
  const std::string shown = "caf\xef\xbf\xbd";  // U+FFFD replaces the byte
  const auto name_of = [](const nlohmann::json& evaluated) {
    return evaluated.contains("classes") ? evaluated["classes"][0]["name"] : evaluated;
  };
  EXPECT_EQ(name_of(json("eval out")), shown);
  EXPECT_EQ(name_of(nlohmann::json::parse(read_file(at("out/evaluation.json")))), shown);
  TANREN_EXPECT_CONTAINS(json("plan images.toml")["classes"]["reason"].get<std::string>(), shown);
  std::istringstream log(read_file(at("out/log.jsonl")));
  for (std::string line; std::getline(log, line);) {
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
}

TEST_F(Day, what_was_asked_stays_asked_when_the_run_goes_on) {
  folder_.file("train.csv", rows(40));  // more than the batch, whose size is the default
  folder_.file("asked.toml",
               csv_config("train.csv", "eval.csv")
                   .replace(csv_config("train.csv", "eval.csv").find("global_batch = 4"), 16,
                            "global_batch = 32"));
  ASSERT_EQ(tanren("run asked.toml --quiet --out out --set run.stop_after=2").code, 0);
  const auto source = [&](const std::string& line) {
    return nlohmann::json(json("plan out")[line]["source"]).get<std::string>();
  };
  EXPECT_EQ(source("global_batch"), "asked");
  ASSERT_EQ(tanren("run out --quiet --set run.stop_after=1").code, 0);
  ASSERT_EQ(tanren("run out --quiet --set run.stop_after=1").code, 0);
  EXPECT_EQ(source("global_batch"), "asked");
  EXPECT_EQ(json("plan run.toml")["optimizer"]["source"], json("plan out")["optimizer"]["source"]);
}

TEST_F(Day, what_memory_changed_by_itself_is_said_on_the_console) {
  folder_.file(
      "wide.toml",
      "[run]\nsteps = 1\nthreads = 1\n[model]\nkind = \"convnet\"\nchannels = [16, 32, 64]\n"
      "norm = \"batch\"\n[data.train]\nkind = \"synthetic\"\nsamples = 64\n"
      "fields = [\"inputs: float[3,64,64] in [-1, 1]\", \"labels: int[] in [0, 4]\"]\n"
      "[batch]\nglobal_batch = 64\n[precision]\nmode = \"fp32\"\n");
  // The smallest limit that the program names, in MiB.
  const auto least = [&](const std::string& more) {
    const auto refused = tanren("plan wide.toml --set memory.limit=1KB" + more);
    const std::string smallest = "the smallest limit that works: memory.limit = \"";
    const auto found = refused.output.find(smallest);
    EXPECT_NE(found, std::string::npos) << refused.output;
    return found == std::string::npos ? 0
                                      : std::stoi(refused.output.substr(found + smallest.size()));
  };
  expect(
      "run wide.toml --quiet --out out --set memory.limit=" + std::to_string(least("") + 8) + "MiB",
      0, {"[plan] the microbatch is ", " instead of 64", "changes the numbers"});
  const std::string sixteen = " --set batch.microbatch=16";
  const std::string text =
      expect("run wide.toml --quiet --out again" + sixteen +
                 " --set memory.limit=" + std::to_string(least(sixteen)) + "MiB",
             0, {"computed again in each backward"});
  EXPECT_EQ(text.find("the microbatch is"), std::string::npos) << text;
}

TEST_F(Day, quiet_is_quiet_in_plan_and_eval) {
  ASSERT_EQ(expect("plan run.toml --quiet", 0), "");
  ASSERT_EQ(expect("run run.toml --quiet --out out", 0), "");
  EXPECT_EQ(expect("eval out --quiet", 0), "");
  EXPECT_FALSE(json("eval out --quiet").empty());
  EXPECT_FALSE(json("plan run.toml --quiet").empty());
}

TEST_F(Day, spikes_without_end_are_few_lines) {
  std::string text = "label,a,b\n";
  for (int i = 0; i < 40; ++i) {
    const bool is_far = i % 4 == 3;
    text += std::to_string(i % 2) + "," + (is_far ? "400" : "1") + "," +
            (is_far ? "-300" : std::to_string(i % 3)) + "\n";
  }
  folder_.file("spiky.csv", text);
  const auto result = tanren(
      "run run.toml --out out --set data.train.path=spiky.csv --set data.eval.path=spiky.csv --set "
      "data.shuffle=false --set batch.global_batch=1 --set run.steps=400 --set guard.spike_z=1 "
      "--set guard.spike_window=50 --set metrics.console_every=1000 --set "
      "optimizer.learning_rate=1e-6");
  ASSERT_EQ(result.code, 0) << result.output;
  const auto lines_with = [](const std::string& all, const std::string& part) {
    int64_t count = 0;
    for (size_t i = all.find(part); i != std::string::npos; i = all.find(part, i + 1)) ++count;
    return count;
  };
  EXPECT_GT(lines_with(read_file(at("out/log.jsonl")), "\"cause\":\"spike\""), 20);
  const int64_t told = lines_with(result.output, "spike: ");
  EXPECT_GE(told, 1) << result.output;
  EXPECT_LE(told, 400 / 50) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, " more since step ");
}

TEST_F(Day, a_text_of_the_config_without_quotes_is_told_with_them) {
  folder_.file("bare.toml", "[run]\nsteps = 4\n[data.train]\npath = train.csv\n");
  expect("run bare.toml", 2, {"bare.toml:4", "texts need quotes: path = \"train.csv\""});
}

TEST_F(Day, a_path_that_is_typed_is_relative_to_where_it_is_typed) {
  fs::create_directories(at("configs"));
  folder_.file("configs/run.toml", csv_config("none.csv", "../eval.csv"));
  expect("plan configs/run.toml --set data.train.path=train.csv", 0);
  expect("plan configs/run.toml --set data.train.path=../train.csv", 2, {"cannot read"});
}

}  // namespace
}  // namespace tanren::testing
