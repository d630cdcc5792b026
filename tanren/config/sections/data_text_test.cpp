#include "tanren/config/config_test_util.h"
#include "tanren/config/identity.h"
#include "tanren/config/write_config.h"

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::parse;

const std::string kModel = "[run]\nepochs = 1\n[model]\nkind = \"own\"\n";
const std::string kText = kModel + R"([data.train]
kind = "text"
path = "books"
context = 64
[data.eval]
kind = "text"
path = "books"
context = 64
)";
const std::string kTokens = kModel + R"([data.train]
kind = "tokens"
path = "ids.bin"
context = 64
vocab_size = 50257
)";

struct Case {
  std::vector<std::string> sets;
  const char* part;
};

TEST(ValidateText, refuses_windows_files_and_parts_that_cannot_be) {
  const Case cases[] = {
      {{"data.train.path="}, "data.train.path is missing; name a file, a folder or a pattern"},
      {{"data.train.context=0"}, "data.train.context is missing"},
      {{"data.train.context=-5"}, "data.train.context is -5"},
      {{"data.train.context=99999999999"}, "data.train.context is 99999999999"},
      {{"data.train.stride=-1"}, "data.train.stride is -1; it must lie in [1, context] (64)"},
      {{"data.train.stride=65"}, "data.train.stride is 65"},
      {{"data.train.part=[0.5]"}, "data.train.part must be [low, high) within [0, 1]"},
      {{"data.train.part=[0.5, 0.5]"}, "data.train.part must be"},
      {{"data.train.part=[-0.1, 0.5]"}, "data.train.part must be"},
      {{"data.train.part=[0, 1.5]"}, "data.train.part must be"},
      {{"data.train.part=[0, nan]"}, "data.train.part"},
      {{"data.train.dtype=uint16"}, "data.train.dtype has no meaning for data.train.kind \"text\""},
      {{"data.train.vocab_size=300"}, "data.train.vocab_size has no meaning"},
      {{"data.train.document_end=0"}, "data.train.document_end has no meaning"},
      {{"data.train.label=y"}, "data.train.label has no meaning"},
      {{"data.train.classes=3"}, "data.train.classes has no meaning"},
      {{"data.train.samples=3"}, "data.train.samples has no meaning"},
      {{"data.train.flip=0.5"}, "data.train.flip has no meaning"},
      {{"data.eval.stride=100"}, "data.eval.stride is 100"},
  };
  for (const auto& [sets, part] : cases) expect_contains(error_of(kText, sets), part);
}

const std::string kTable = kModel + R"([data.train]
kind = "text_table"
path = "train.csv"
tokenizer = "vocab.txt"
context = 64
[data.eval]
kind = "text_table"
path = "eval.csv"
context = 64
)";

TEST(ValidateText, refuses_tables_of_texts_that_lack_a_key_or_contradict_themselves) {
  EXPECT_EQ(parse(kTable).data.train.text, "text");
  const Case cases[] = {
      {{"data.train.path="}, "data.train.path is missing"},
      {{"data.train.tokenizer="}, "data.train.tokenizer is missing"},
      {{"data.train.context=0"}, "data.train.context is missing"},
      {{"data.train.text="}, "data.train.text is missing"},
      {{"data.train.text=label"}, "text, text_pair and label must be different columns"},
      {{"data.train.text_pair=text"}, "must be different columns"},
      {{"data.train.padding=left"}, "data.train.padding"},
      {{"data.train.class_names=[\"a\", \"a\"]"}, "has an empty name or one twice"},
      {{"data.train.class_names=[\"a\"]", "data.train.label_type=value", "model.loss=mse"},
       "class_names has no meaning for label_type \"value\""},
      {{"data.train.class_names=[\"a\"]", "data.train.classes=2"},
       "data.train.classes is 2, class_names has 1"},
      {{"data.train.stride=4"}, "data.train.stride has no meaning"},
      {{"data.train.vocab_size=4"}, "data.train.vocab_size has no meaning"},
      {{"data.train.scale=4"}, "data.train.scale has no meaning"},
      {{"data.train.label_type=value"}, "does not go with model.loss"},
      {{"data.eval.tokenizer=other.txt"}, "data.eval.tokenizer differs from data.train.tokenizer"},
      {{"data.eval.class_names=[\"a\"]"}, "data.eval.class_names differs"},
      {{"data.eval.text_pair=b"}, "one of data.train and data.eval has text_pair"},
      {{"data.eval.kind=csv"}, "make both text_table"},
  };
  for (const auto& [sets, part] : cases) expect_contains(error_of(kTable, sets), part);
  expect_contains(error_of(kText, {"data.train.tokenizer=vocab.txt"}),
                  "data.train.tokenizer has no meaning");
}

TEST(ValidateText, refuses_tokens_without_a_vocabulary_or_outside_it) {
  const Case cases[] = {
      {{"data.train.vocab_size=0"}, "data.train.vocab_size is missing; give the tokenizer's"},
      {{"data.train.vocab_size=-1"}, "data.train.vocab_size is -1"},
      {{"data.train.dtype=float"}, "one of auto, uint8, uint16, uint32, int32, int64"},
      {{"data.train.document_end=50257"}, "data.train.document_end is 50257"},
      {{"data.train.document_end=-2"}, "data.train.document_end is -2"},
  };
  for (const auto& [sets, part] : cases) expect_contains(error_of(kTokens, sets), part);
}

TEST(ValidateText, refuses_to_evaluate_on_another_vocabulary_or_kind_of_data) {
  expect_contains(error_of(kText, {"data.eval.kind=tokens", "data.eval.vocab_size=1000"}),
                  "data.train has a vocabulary of 256, data.eval of 1000");
  expect_contains(error_of(kText, {"data.eval.kind=tensors", "data.eval.context=0"}),
                  "data.train.kind is \"text\", data.eval.kind \"tensors\"");
  EXPECT_EQ(parse(kText, {"data.eval.kind=tokens", "data.eval.vocab_size=256"}).data.eval.context,
            64);
}

TEST(ValidateText, refuses_its_keys_for_other_kinds_of_data) {
  for (const char* set :
       {"data.train.context=8", "data.train.stride=8", "data.train.include=[a]",
        "data.train.exclude=[a]", "data.train.part=[0, 0.5]", "data.train.vocab_size=8"}) {
    expect_contains(error_of(config_test::kGood, {set}),
                    "has no meaning for data.train.kind \"csv\"; drop it");
  }
}

TEST(ValidateText, every_key_is_written_and_read_back) {
  const auto same = [](const RunConfig& config) {
    const auto text = to_toml(config);
    auto back = parse(text);
    back.asked = config.asked;
    EXPECT_EQ(to_toml(back), text);
    EXPECT_EQ(differing_keys(config, back), std::vector<std::string>());
  };
  std::vector<std::string> sets;
  for (const std::string source : {"data.train.", "data.eval."}) {
    for (const char* set :
         {"stride=32", "include=[\"*.py\"]", "exclude=[\"test/*\"]", "part=[0.25, 0.5]"}) {
      sets.push_back(source + set);
    }
  }
  const auto text = parse(kText, sets);
  EXPECT_EQ(text.data.eval.part, (std::vector<double>{0.25, 0.5}));
  same(text);
  same(parse(kTokens, {"data.train.dtype=uint32", "data.train.document_end=50256"}));
  same(parse(kTable,
             {"data.train.text=body", "data.train.text_pair=more", "data.train.padding=fixed",
              "data.train.class_names=[\"no\", \"yes, \\\"so\\\"\"]", "data.eval.text_pair=more"}));
}

TEST(ValidateText, knows_the_words_that_people_bring) {
  expect_contains(error_of(kText, {"data.train.kind=txt"}), "here it is text");
  expect_contains(error_of(kText, {"data.train.seq_len=3"}), "data.train.context");
  expect_contains(error_of(kText, {"data.train.validation_split=0.1"}), "data.split");
}

}  // namespace
}  // namespace tanren
