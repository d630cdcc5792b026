// A GPT with its tokenizer as a user meets it. It is trained on a text and continues a text prompt,
// wherever its files are. Its perplexities are those of the text.
#include "tests/predict/predict_files.h"

#include "tanren/base/one_line.h"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace tanren::testing {
namespace {

namespace fs = std::filesystem;

const std::string kGptTokenizer = TANREN_SOURCE_DIR "/tests/fixtures/tokenizer/bpe.json";

class Generate : public PredictFiles {
 protected:
  Generate() {
    std::string book;
    for (int i = 0; i < 12; ++i) {
      book += "the forge trains the blade and remembers each blow of hammer " +
              std::to_string(i * 37 % 11) + "\n日本 don't  stop\n";
    }
    folder_.file("book.txt", book);
    fs::copy_file(kGptTokenizer, at("bpe.json"));
    folder_.file("gpt.toml", gpt("kind = \"text\"\npath = \"book.txt\"\n"));
  }

  // `data`: the keys of both data sections that name the source.
  static std::string gpt(const std::string& data, bool has_tokenizer = true) {
    const std::string own = has_tokenizer ? "tokenizer = \"bpe.json\"\n" : "";
    return "[run]\nsteps = 4\nthreads = 1\nseed = 3\n[model]\nkind = \"gpt2\"\nnum_layers = 1\n"
           "num_heads = 2\nhidden_size = 8\ncontext_length = 16\ndropout = 0.0\n[data.train]\n"
           "context = 8\n" +
           own + data + "[data.eval]\ncontext = 8\nstride = 3\n" + data +
           "[batch]\nglobal_batch = 4\n[precision]\nmode = \"fp32\"\n[evaluate]\nmetrics = "
           "[\"perplexity\", \"byte_perplexity\", \"bits_per_byte\", \"word_perplexity\"]\n"
           "[generate]\ntokens = 20\n";
  }
  // The continuation of a prompt. The output is the continuation and a newline.
  std::string generated(const std::string& model, const std::string& more = "") const {
    const auto result = tanren("generate " + model + " --prompt 'the forge'" + more);
    EXPECT_EQ(result.code, 0) << model << more << "\n" << result.output;
    EXPECT_EQ(result.output.substr(0, 9), "the forge") << result.output;
    EXPECT_EQ(utf8_text(result.output), result.output);
    EXPECT_EQ(result.output.back(), '\n');
    return result.output.substr(0, result.output.size() - 1);
  }
};

TEST_F(Generate, refuses_what_writes_no_text_and_prompts_that_do_not_fit) {
  train("run.toml");
  expect("generate absent", 2, {"[generate] there is no absent; name a run folder"});
  expect("generate out", 2, {"[generate] out is of kind mlp and predicts no next token"});
  expect("generate", 2, {"FILE"});
  expect("generate out --out x", 2, {"generate takes no --out"});
  fs::remove_all(at("out"));
  train("gpt.toml");
  std::string longer;
  for (int i = 0; i < 17; ++i) longer += "forge ";
  expect("generate out --prompt '" + longer + "'", 2,
         {"[generate] the prompt has", "tokens, and the model reads 16 at once; shorten it"});
  expect("generate out --set generate.tokens=0", 2, {"generate.tokens is 0"});
  expect("generate out --set generate.stop_token=600", 2, {"stop_token is 600"});
  for (const char* more : {"", " --json"}) {
    expect("generate out --prompt 'the forge'" + std::string(more) + " >/dev/full", 1,
           {"[generate] cannot write to standard output (No space left on device); make room"});
  }
}

TEST_F(Generate, without_a_tokenizer_takes_token_numbers_alone) {
  const auto ids = tanren("convert book.txt ids.bin --tokenizer bpe.json");
  ASSERT_EQ(ids.code, 0) << ids.output;
  const std::string data = "kind = \"tokens\"\npath = \"ids.bin\"\nvocab_size = 600\n";
  folder_.file("numbers.toml", gpt(data, false));
  const std::string asks = "bits_per_byte needs the bytes of the text, which these data do not";
  expect("run numbers.toml --quiet --out refused --set evaluate.metrics=[bits_per_byte]", 2,
         {asks, "name the byte-level tokenizer of the ids in data.train.tokenizer"});
  train("numbers.toml", " --set evaluate.metrics=[perplexity]");
  expect("generate out --prompt 'Once upon'", 2,
         {"[generate] prompt has \"Once\", and this data is token numbers; write for example "
          "\"15496 11\", or train with the tokenizer in data.train.tokenizer"});
  const std::string no_ids = "book.txt is text by its name, and the model reads token ids";
  expect("eval out book.txt", 2, {no_ids});
  expect("predict out book.txt --out rows.jsonl", 2, {no_ids});
  const auto numbers = expect("generate out --prompt '15 11'", 0);
  EXPECT_EQ(numbers.substr(0, 6), "15 11 ");
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), ' '), 21);
}

TEST_F(Generate, goes_on_as_the_evaluations_sample_from_every_form_of_the_model_without_data) {
  train("gpt.toml");
  const std::string prompt = " --set 'generate.prompt=the forge'";
  const auto sample = json("eval out" + prompt)["sample"].get<std::string>();
  const auto greedy =
      json("eval out --set generate.temperature=0" + prompt)["sample"].get<std::string>();
  ASSERT_EQ(tanren("convert out python --quiet").code, 0);
  for (const char* name : {"book.txt", "bpe.json", "gpt.toml", ".tokens"}) {
    fs::remove_all(at(name));
  }
  const std::vector<std::string> forms = {"out", "out/model.tanren.safetensors", "python"};
  for (const auto& form : forms) {
    EXPECT_EQ(generated(form, " --set generate.temperature=0 --set generate.tokens=20"), greedy);
    EXPECT_EQ(generated(form, " --set generate.tokens=20"), sample) << form;
  }
  EXPECT_EQ(json("generate out --prompt 'the forge'")["text"], sample);
  EXPECT_NE(generated("out", " --set generate.seed=5"), sample);
  const auto alone = expect("generate out", 0);
  EXPECT_EQ(alone.find("<|endoftext|>"), std::string::npos) << "no text begins with it";
}

TEST_F(Generate, goes_on_from_a_run_that_is_not_finished_without_its_data) {
  train("gpt.toml", " --set run.stop_after=2 --set run.steps=9");
  ASSERT_FALSE(exists("out/model.tanren.safetensors"));
  for (const char* name : {"book.txt", "bpe.json", ".tokens"}) fs::remove_all(at(name));
  generated("out");
}

TEST_F(Generate, converted_folders_hold_the_tokenizer_to_the_letter) {
  train("gpt.toml");
  ASSERT_EQ(tanren("convert out python --quiet").code, 0);
  EXPECT_EQ(read("python/tokenizer.json"), read_file(kGptTokenizer));
  const auto config = nlohmann::json::parse(read("python/tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(config["model_max_length"], 8);
  EXPECT_EQ(nlohmann::json::parse(read("python/config.json"))["vocab_size"], 600);
  EXPECT_EQ(nlohmann::json::parse(read("python/config.json"))["eos_token_id"], 0)
      << "its <|endoftext|>";
  EXPECT_EQ(read("out/tokenizer/tokenizer.json"), read_file(kGptTokenizer));
}

TEST_F(Generate, perplexities_are_those_of_the_text_and_predictions_show_it) {
  train("gpt.toml");
  const auto report = json("eval out");
  // A model trained on token ids with their tokenizer has the same report on the text as on the
  // ids.
  ASSERT_EQ(tanren("convert book.txt ids.bin --tokenizer bpe.json --quiet").code, 0);
  folder_.file("ids.toml", gpt("kind = \"tokens\"\npath = \"ids.bin\"\n"));
  ASSERT_EQ(tanren("run ids.toml --quiet --out ids").code, 0);
  const auto of_ids = json("eval ids");
  for (const char* name : {"evaluate.loss", "evaluate.perplexity", "evaluate.byte_perplexity",
                           "evaluate.bits_per_byte", "evaluate.word_perplexity"}) {
    EXPECT_EQ(of_ids[name], report[name]) << name;
  }
  fs::create_directories(at("books"));
  folder_.file("books/Book.TXT", read("book.txt"));
  for (const char* target : {"ids book.txt", "ids books", "ids/model.tanren.safetensors book.txt",
                             "ids/model.tanren.safetensors books"}) {
    const auto said = tanren("eval " + std::string(target) + " --json");
    ASSERT_EQ(said.code, 0) << said.output;  // a line about tokenizing may come first
    const auto of_text = nlohmann::json::parse(said.output.substr(said.output.find('{')));
    EXPECT_EQ(of_text["evaluate.bits_per_byte"], report["evaluate.bits_per_byte"]) << target;
  }
  folder_.file("short.txt", "a");
  expect("predict out short.txt --out rows.jsonl", 2, {"lower data.eval.context"});
  for (const std::string model : {"out", "ids"}) {
    ASSERT_EQ(tanren("predict " + model + " book.txt --out rows.jsonl --force --quiet").code, 0);
    double sum = 0, tokens = 0;
    std::string text;
    std::istringstream lines(read("rows.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      if (row["token"].is_null()) {
        EXPECT_TRUE(row["text"].is_null());
        continue;
      }
      sum += row["log_probability"].get<double>();
      ++tokens;
      text += row["text"].get<std::string>();
    }
    TANREN_EXPECT_CONTAINS(text, "remembers each blow of hammer");
    const std::string book = read("book.txt");
    const size_t first = book.find(text.substr(0, 12));  // the first token is no target
    ASSERT_LT(first, 12u);
    const auto bytes = static_cast<double>(book.size() - first);
    EXPECT_NEAR(std::exp(-sum / tokens), report["evaluate.perplexity"].get<double>(), 1e-2);
    EXPECT_NEAR(-sum / bytes / std::log(2.0), report["evaluate.bits_per_byte"].get<double>(), 1e-4);
  }
  // Issue 26: the last line gave the number of rows as that of samples, or the reverse.
  const std::string rows = read("rows.jsonl");
  int64_t samples = 0;
  for (size_t at = rows.find("\"position\":0,"); at != std::string::npos; ++samples) {
    at = rows.find("\"position\":0,", at + 1);
  }
  EXPECT_GT(samples, 1);
  expect("predict out book.txt --out said.jsonl", 0,
         {"said.jsonl: " + std::to_string(lines_in("rows.jsonl")) + " rows of " +
          std::to_string(samples) + " samples, by"});
  const auto value = [&](const char* name) {
    return report[std::string("evaluate.") + name].get<double>();
  };
  EXPECT_NEAR(std::log(value("byte_perplexity")) / std::log(2.0), value("bits_per_byte"), 1e-12);
  EXPECT_GT(value("word_perplexity"), value("perplexity"));
}

TEST_F(Generate, a_text_is_tokenized_once_for_all_runs_of_a_place) {
  const auto first = tanren("run gpt.toml --quiet --out out");
  ASSERT_EQ(first.code, 0) << first.output;
  TANREN_EXPECT_CONTAINS(first.output, "[data.train] tokenized ");
  EXPECT_EQ(first.output.find("tokenized"), first.output.rfind("tokenized"))
      << "the evaluation data are the same text: " << first.output;
  EXPECT_TRUE(exists(".tokens"));
  const auto second = tanren("run gpt.toml --quiet --out other");
  ASSERT_EQ(second.code, 0) << second.output;
  EXPECT_EQ(second.output.find("tokenized"), std::string::npos) << second.output;
  EXPECT_EQ(read("other/model.safetensors"), read("out/model.safetensors"));
  const auto runs = expect("runs .", 0);
  EXPECT_EQ(runs.find(".tokens"), std::string::npos) << "it is no run";
}

TEST_F(Generate, a_resumed_run_needs_the_same_text_and_brings_its_tokenizer) {
  train("gpt.toml", " --set run.stop_after=2");
  fs::remove(at("bpe.json"));
  folder_.file("kept.txt", read("book.txt"));
  std::string other = read("book.txt");
  other[0] = 'T';
  folder_.file("book.txt", other);
  expect("run out --quiet", 2, {"[data]"});
  folder_.file("book.txt", read("kept.txt"));
  expect("run out --quiet", 0);
}

TEST_F(Generate, ranks_share_one_cache_and_count_the_text_as_one_rank_does) {
  const auto result = tanren("launch -n 2 run gpt.toml --quiet --out out");
  ASSERT_EQ(result.code, 0) << result.output;
  TANREN_EXPECT_CONTAINS(result.output, "tokenized");
  EXPECT_EQ(result.output.find("tokenized"), result.output.rfind("tokenized")) << result.output;
  const auto one = json("eval out");
  const auto two = json("launch -n 2 eval out");
  for (const char* name : {"evaluate.perplexity", "evaluate.byte_perplexity",
                           "evaluate.bits_per_byte", "evaluate.word_perplexity"}) {
    const double expected = one[name].get<double>();
    EXPECT_NEAR(two[name].get<double>(), expected, 1e-6 * expected) << name;
  }
}

}  // namespace
}  // namespace tanren::testing
