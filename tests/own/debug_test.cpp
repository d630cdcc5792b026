// run.debug: what it shows of a user's own program before the first step, and that it changes
// nothing else. Issue 25.
#include "tests/own/fragile.h"

#include "tests/support/gan.h"
#include "tests/support/run_log.h"

#include <nlohmann/json.hpp>
#include <torch/csrc/autograd/autograd.h>

#include <regex>

namespace tanren::testing {
namespace {

constexpr const char* kTitle = "FIRST BATCH";

using Words = std::vector<std::string>;

// `tanren run` with run.debug, not quiet.
int go_debugging(OwnProgram& program, const Words& more = {}) {
  EXPECT_EQ(program.go("plan"), 0) << program.err;  // also writes the config
  Words words{
      "own",   "run",           program.at("run.toml").string(), "--out", program.run().string(),
      "--set", "run.debug=true"};
  words.insert(words.end(), more.begin(), more.end());
  return program.go(words);
}

int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Expects a line of these cells, separated by spaces.
void expect_cells(const std::string& text, const std::string& name, const std::string& cells) {
  std::string pattern = "\n +" + std::regex_replace(name, std::regex(R"([().])"), R"(\$&)");
  for (const char c : cells) {
    if (c == '|') {
      pattern += " +";
    } else if (std::string_view("[]().").find(c) != std::string_view::npos) {
      pattern += std::string("\\") + c;
    } else {
      pattern += c;
    }
  }
  EXPECT_TRUE(std::regex_search(text, std::regex(pattern + "\n")))
      << name << cells << " in " << text;
}

TEST(OwnDebug, shows_the_first_batch_and_the_layers_before_the_first_step) {
  OwnProgram program;
  ASSERT_EQ(go_debugging(program), 0) << program.err;
  expect_cells(program.out, "inputs", "|[8, 6]|float32");
  expect_cells(program.out, "labels", "|[8]|int64");
  TANREN_EXPECT_CONTAINS(program.out, "8 samples, in microsteps of 4: 2");
  expect_cells(program.out, "(model)", "|OwnNet|[4, 3]|float32|-|-");
  expect_cells(program.out, "body", "|Linear|[4, 8]|float32|56|float32");
  expect_cells(program.out, "head", "|Linear|[4, 3]|float32|27|float32");
  TANREN_EXPECT_CONTAINS(program.out, "83 parameters, 83 trained");
  EXPECT_LT(program.out.find(kTitle), program.out.find("step "));
  EXPECT_FALSE(contains(program.err, kTitle));
}

TEST(OwnDebug, is_silent_without_the_key_and_where_only_errors_are_printed) {
  OwnProgram program;
  ASSERT_EQ(go_debugging(program, {"--set", "run.debug=false"}), 0) << program.err;
  EXPECT_FALSE(contains(program.out + program.err, kTitle));
  OwnProgram quiet;
  ASSERT_EQ(go_debugging(quiet, {"--quiet"}), 0) << quiet.err;
  EXPECT_EQ(quiet.out + quiet.err, "");
}

TEST(OwnDebug, leaves_the_output_for_programs_as_it_is) {
  OwnProgram program;
  ASSERT_EQ(go_debugging(program, {"--json"}), 0) << program.err;
  EXPECT_EQ(nlohmann::json::parse(program.out).at("steps"), 4) << program.out;
  expect_cells(program.err, "body", "|Linear|[4, 8]|float32|56|float32");
}

TEST(OwnDebug, changes_no_number_and_a_resumed_run_may_begin_or_end_with_it) {
  OwnProgram whole, parted;
  train(whole);
  parted.factory = fragile_task;
  ASSERT_EQ(go_debugging(parted, {"--set", "run.stop_after=1"}), 0) << parted.err;
  EXPECT_TRUE(contains(parted.out, kTitle));
  ASSERT_EQ(go_debugging(parted, {"--set", "run.stop_after=1", "--set", "run.debug=false"}), 0)
      << parted.err;
  EXPECT_FALSE(contains(parted.out, kTitle));
  ASSERT_EQ(go_debugging(parted), 0) << parted.err;
  EXPECT_TRUE(contains(parted.out, kTitle));
  expect_same_log(whole.run(), parted.run());
  expect_same_state(whole, parted, 4);
}

TEST(OwnDebug, changes_no_number_of_data_that_draw) {
  const auto logged = [](OwnProgram& program, const std::string& debug) {
    program.spoil_train = [](Collated& made, const std::vector<int64_t>&) {
      const at::Tensor& inputs = made.batch["inputs"];
      made.batch.fields.set("inputs", inputs + at::rand_like(inputs));
    };
    ASSERT_EQ(go_debugging(program, {"--set", debug, "--set", "data.workers=0"}), 0) << program.err;
  };
  OwnProgram plain, debugged;
  logged(plain, "run.debug=false");
  logged(debugged, "run.debug=true");
  expect_same_log(plain.run(), debugged.run());
}

TEST(OwnDebug, leaves_a_batch_that_fails_to_the_loop) {
  OwnProgram plain, debugged;
  for (OwnProgram* program : {&plain, &debugged}) {
    program->spoil_train = [](Collated&, const std::vector<int64_t>& indices) {
      if (indices.size() == 8) throw DataError("[data] torn");  // a whole batch
    };
  }
  EXPECT_EQ(go_debugging(plain, {"--set", "run.debug=false"}), go_debugging(debugged));
  EXPECT_EQ(plain.err, debugged.err);
  TANREN_EXPECT_CONTAINS(debugged.out, "first batch: not known: [data] torn");
}

TEST(OwnDebug, shows_the_batch_that_comes_next_in_a_resumed_run) {
  OwnProgram program;
  program.spoil_train = [](Collated& made, const std::vector<int64_t>& indices) {
    const auto size = static_cast<int64_t>(indices.size());
    made.batch.fields.set("extra", at::zeros({size, 1 + indices.front() / 8}));
  };
  ASSERT_EQ(go_debugging(program, {"--set", "run.stop_after=2"}), 0) << program.err;
  expect_cells(program.out, "extra", "|[8, 1]|float32");
  ASSERT_EQ(go_debugging(program), 0) << program.err;
  expect_cells(program.out, "extra", "|[8, 3]|float32");
}

TEST(OwnDebug, is_of_rank_0_alone) {
  OwnProgram program;
  ASSERT_EQ(go_debugging(program, kTwoRanks), 0) << program.err;
  EXPECT_EQ(count_of(program.out, kTitle), 1) << program.out;
  expect_cells(program.out, "inputs", "|[4, 6]|float32");
  TANREN_EXPECT_CONTAINS(program.out, "rank 0 of 2 has 4 of 8 samples, in microsteps of 4: 1");
  EXPECT_LT(program.out.find("rank 1 of 2: "), program.out.find(kTitle));
}

TEST(OwnDebug, shows_the_dtypes_that_the_plan_gives) {
  OwnProgram casts;
  ASSERT_EQ(go_debugging(casts, {"--set", "precision.mode=bf16"}), 0) << casts.err;
  expect_cells(casts.out, "body", "|Linear|[4, 8]|bfloat16|56|float32");
  OwnProgram stores;
  ASSERT_EQ(go_debugging(stores, {"--set", "precision.mode=bf16", "--set", "precision.level=O3"}),
            0)
      << stores.err;
  expect_cells(stores.out, "body", "|Linear|[4, 8]|bfloat16|56|bfloat16");
}

TEST(OwnDebug, shows_the_layers_of_every_phase) {
  OwnProgram program;
  program.info.input_shape = {8, 8};
  program.spoil_train = [](Collated& made, const std::vector<int64_t>& indices) {
    made.batch.fields.set("inputs", at::zeros({static_cast<int64_t>(indices.size()), 8, 8}));
  };
  program.factory = [](const ModelOptions&, const DataInfo&) { return two_phase_gan(); };
  ASSERT_EQ(go_debugging(program), 0) << program.err;
  expect_cells(program.out, "generator", "|Linear|[4, 64]|float32|1,088|float32");
  expect_cells(program.out, "critic_hidden", "|Linear|[4, 16]|float32|1,040|float32");
  expect_cells(program.out, "critic_score", "|Linear|[4, 1]|float32|17|float32");
}

TEST(OwnDebug, shows_the_layers_of_a_forward_that_differentiates) {
  OwnProgram program;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    Task task = supervised(net, options, info);
    task.phases[0].forward = [net](const Batch& batch) {
      const at::Tensor point = batch["inputs"].detach().requires_grad_();
      const at::Tensor outputs = net->forward(point);
      const auto slopes = torch::autograd::grad({outputs.sum()}, {point}, {},
                                                /*retain_graph=*/true, /*create_graph=*/true);
      return Terms{cross_entropy(outputs, batch["labels"]),
                   Term{"penalty", slopes[0].square().sum()}};
    };
    return task;
  };
  ASSERT_EQ(go_debugging(program), 0) << program.err;
  expect_cells(program.out, "body", "|Linear|[4, 8]|float32|56|float32");
  expect_cells(program.out, "head", "|Linear|[4, 3]|float32|27|float32");
  EXPECT_FALSE(contains(program.out, "none are known")) << program.out;
}

TEST(OwnDebug, says_where_a_forward_needs_values_and_trains_it_all_the_same) {
  OwnProgram program;
  program.factory = [](const ModelOptions& options, const DataInfo& info) {
    auto net = std::make_shared<OwnNet>();
    Task task = supervised(net, options, info);
    task.phases[0].forward = [net](const Batch& batch) {
      const at::Tensor hidden = at::relu(net->body(batch["inputs"]));
      const double largest = hidden.max().item<double>();
      return Terms{cross_entropy(net->head(hidden / (1 + largest)), batch["labels"])};
    };
    return task;
  };
  ASSERT_EQ(go_debugging(program), 0) << program.err;
  expect_cells(program.out, "body", "|Linear|[4, 8]|float32|56|float32");
  expect_cells(program.out, "head", "|Linear|-|-|27|float32");
  TANREN_EXPECT_CONTAINS(program.out, "after that none are known: ");
  TANREN_EXPECT_CONTAINS(program.out, "needs values");
  EXPECT_EQ(program.attempts(), 4);
}

}  // namespace
}  // namespace tanren::testing
