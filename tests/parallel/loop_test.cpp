// Whole runs on ranks that are threads: the log equals that of one rank; stop and resume on other
// numbers of ranks; evaluation without padding; failures of one rank that end all.
#include "tests/support/loop_run.h"
#include "tests/support/rank_run.h"
#include "tests/support/token_data.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/train/evaluate.h"
#include "tanren/train/on_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

namespace tanren::testing {
namespace {

using ::testing::HasSubstr;

TEST_F(Loop, of_two_and_three_replicas_writes_the_log_of_one_rank) {
  const auto one = go(looped_config(1), "1");
  EXPECT_TRUE(ranks_.empty());
  for (const int64_t replicas : {2, 3}) {
    const std::string folder = std::to_string(replicas);
    const auto output = go(looped_config(replicas), folder);
    EXPECT_EQ(output.loop.ending, Ending::finished);
    EXPECT_EQ(plan_.parallel.world_size, replicas);
    ASSERT_EQ(std::ssize(ranks_), replicas);
    EXPECT_EQ(ranks_[1].rfind("rank 1 of " + folder + ": cpu, 1 threads, threads, ", 0), 0U)
        << ranks_[1];
    expect_same("1", folder);
    ASSERT_EQ(output.summary.evaluate.size(), one.summary.evaluate.size());
    for (size_t i = 0; i < one.summary.evaluate.size(); ++i) {
      EXPECT_NEAR(output.summary.evaluate[i].second, one.summary.evaluate[i].second, 1e-9)
          << one.summary.evaluate[i].first;
    }
    EXPECT_EQ(output.loop.evaluation->samples, 31);
    const auto weights = [&](const std::string& name) {
      return read_checkpoint(*latest_checkpoint(folder_.path() / name / "checkpoints")).model;
    };
    const auto expected = weights("1"), got = weights(folder);
    for (const auto& [name, tensor] : expected.tensors) {
      EXPECT_LT(relative(got.tensors.at(name), tensor), 1e-10) << name;
    }
  }
}

// Texts of one to 22 words: the ranks' shares of a batch are padded to other lengths than the
// batch.
TEST_F(Loop, of_texts_padded_to_the_longest_of_a_rank_is_that_of_one_rank) {
  folder_.file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nred\ngreen\n");
  std::string table = "text,label\n";
  for (int i = 0; i < 24; ++i) {
    for (int word = 0; word <= i * 7 % 22; ++word) table += word % 3 == i % 3 ? "red " : "green ";
    table += "," + std::to_string(i % 3) + "\n";
  }
  folder_.file("texts.csv", table);
  for (const std::string kind : {"bert", "gpt2"}) {
    const auto trained = [&](int64_t replicas) {
      auto config = looped_config(replicas);
      config.run.steps = 4;
      config.model = tiny_config(kind).model;
      config.model.task = "classify";
      config.model.num_layers = 2;
      config.model.num_heads = 2;
      config.model.hidden_size = 8;
      config.model.attention_dropout = 0.3;
      config.data.train = {
          .kind = "text_table", .path = (folder_.path() / "texts.csv").string(), .context = 24};
      config.data.train.tokenizer = (folder_.path() / "vocab.txt").string();
      config.data.eval = {};
      config.evaluate = {};
      config.batch.global_batch = "12";
      const std::string name = kind + std::to_string(replicas);
      EXPECT_EQ(go(config, name).loop.ending, Ending::finished);
      EXPECT_EQ(plan_.parallel.world_size, replicas);
      return read_checkpoint(*latest_checkpoint(folder_.path() / name / "checkpoints")).model;
    };
    const auto expected = trained(1), got = trained(3);
    for (const auto& [name, tensor] : expected.tensors) {
      // An absolute bound: the gradient of a key bias is only rounding, so the bias stays near 0.
      const at::Tensor apart = (got.tensors.at(name) - tensor).abs().max();
      EXPECT_LT(apart.item<double>(), 1e-12) << kind << " " << name;
    }
    expect_same(kind + "1", kind + "3");
  }
}

TEST_F(Loop, stopped_on_three_ranks_goes_on_on_two_and_on_one_with_the_same_numbers) {
  go(looped_config(1), "whole");
  auto config = looped_config(3);
  config.run.stop_after = 3;
  EXPECT_EQ(go(config, "moved").loop.ending, Ending::stopped);
  config = looped_config(2);
  config.run.stop_after = 3;
  EXPECT_EQ(go(config, "moved").loop.ending, Ending::stopped);
  EXPECT_EQ(go(looped_config(1), "moved").loop.ending, Ending::finished);
  expect_same("whole", "moved");
}

TEST_F(Loop, a_stop_request_is_obeyed_by_all_ranks_after_the_same_update) {
  std::atomic<bool> stop{false};
  struct StopAt final : Sink {
    std::atomic<bool>* stop = nullptr;
    void step(const StepReport& report) override {
      if (report.step == 4) stop->store(true);
    }
  } sink;
  sink.stop = &stop;
  const auto output = go(looped_config(3), "stopped", &stop, {&sink});
  EXPECT_EQ(output.loop.ending, Ending::interrupted);
  EXPECT_GE(output.summary.steps, 4);
  EXPECT_LT(output.summary.steps, 9);
  go(looped_config(1), "whole");
  go(looped_config(3), "stopped");
  expect_same("whole", "stopped");
}

TEST_F(Loop, what_one_rank_throws_ends_all_and_comes_out) {
  struct FullDisk final : Sink {
    void step(const StepReport& report) override {
      if (report.step == 3) throw RunError("[sink] the disk is full; make room");
    }
  } sink;
  try {
    go(looped_config(3), "broken", nullptr, {&sink});
    FAIL() << "nothing was thrown";
  } catch (const RunError& error) {  // not the CommError of the other ranks
    EXPECT_STREQ(error.what(), "[sink] the disk is full; make room; last checkpoint: none");
  }
}

// The plan chooses the number of replicas by the model and the data that the run opens.
TEST_F(Loop, has_as_many_replicas_as_pay_for_its_model_and_data) {
  struct Case {
    const char* model;
    const char* inputs;  // "": text
    const char* batch;
    int64_t replicas;
    const char* reason;
  };
  write_file(folder_.path() / "text.txt", std::string(500, 'a'));
  for (const Case& item : {Case{"mlp", "[1,8,8]", "8", 1, "weights that are used once a sample"},
                           Case{"convnet", "[1,8,8]", "8", 1, "convolutions over 256 pixels"},
                           Case{"convnet", "[1,64,64]", "8", 2, "are at most 1,000,000"},
                           Case{"gpt2", "", "8", 2, "are at most 4,000,000"}}) {
    auto config = tiny_config(item.model);
    config.run.steps = 1;
    config.run.threads = 2;
    config.run.device = "cpu";
    config.precision.mode = "fp32";
    config.batch.global_batch = item.batch;
    config.parallel.ranks = "threads";
    auto& data = config.data.train;
    data.fields[0] = std::string("inputs: float") + item.inputs + " in [-1, 1]";
    if (*item.inputs == 0) {
      data = {};
      data.kind = "text";
      data.path = (folder_.path() / "text.txt").string();
      data.context = 12;
      config.model.context_length = 12;
      config.model.num_layers = 1;
      config.model.hidden_size = 8;
      config.model.num_heads = 1;
    }
    const std::string folder = std::string(item.model) + item.inputs;
    EXPECT_EQ(go(config, folder).loop.ending, Ending::finished) << folder;
    EXPECT_EQ(plan_.parallel.world_size, item.replicas) << folder;
    const auto line =
        std::ranges::find_if(plan_.lines, [](const auto& each) { return each.key == "ranks"; });
    ASSERT_NE(line, plan_.lines.end());
    EXPECT_THAT(line->reason, HasSubstr(item.reason)) << folder;
  }
}

// Two replicas take turns on one device, and their sums go through the threads.
TEST_F(Loop, of_two_replicas_on_a_device_writes_the_log_of_one_rank_there) {
  if (test_device() == "cpu") GTEST_SKIP() << "the test device is the CPU";
  for (const int64_t replicas : {1, 2}) {
    const auto config = looped_config(replicas);
    EXPECT_EQ(go(config, std::to_string(replicas)).loop.ending, Ending::finished);
    EXPECT_EQ(plan_.parallel.world_size, replicas);
  }
  expect_same("1", "2");
}

// Counts the batches that are collated from it.
class CountedData final : public TokenData {
 public:
  using TokenData::TokenData;
  Collated collate(const std::vector<int64_t>& indices) const override {
    ++num_batches;
    return TokenData::collate(indices);
  }
  mutable std::atomic<int> num_batches{0};
};

// A run of two updates on two ranks. An evaluation of 200 batches follows each update. Rank r must
// end `times[r]` from now.
class TimedRun {
 public:
  explicit TimedRun(const std::vector<std::chrono::seconds>& times) {
    const TokenData data(8);
    const CountedData evaluated(400);
    auto config = tiny_config("gpt2");
    config.model.num_layers = 1;
    config.model.hidden_size = 8;
    config.model.num_heads = 1;
    config.run.steps = 2;
    config.run.max_time = "1h";
    config.batch.global_batch = "4";
    config.data.eval.kind = "synthetic";  // not opened: the test evaluates `evaluated`
    config.data.workers = 0;
    config.evaluate.every = 1;
    config.evaluate.batch = 2;
    results.resize(2);
    on_engine("threads", 2, [&](Communicator& comm) {
      RankRun run(config, data, comm);
      run.batches.reset();
      const auto rank = static_cast<size_t>(comm.rank());
      const LoopInputs inputs{.train = data,
                              .eval = &evaluated,
                              .checkpoints = {},
                              .config_toml = "",
                              .plan_text = "",
                              .sinks = {},
                              .origin = "",
                              .ends_at = std::chrono::steady_clock::now() + times[rank]};
      results[rank] = train_loop(run.state, run.parts, inputs);
    });
    num_batches = evaluated.num_batches.load();
  }
  std::vector<LoopResult> results;  // by rank
  int num_batches = 0;              // of evaluations
};

// No rank makes the others wait until it has evaluated its whole share.
TEST(Evaluation, ends_on_all_ranks_when_the_time_of_the_start_is_over) {
  using std::chrono::seconds;
  // The other rank's process may have been started much later.
  for (const seconds other : {seconds(0), seconds(3600)}) {
    const TimedRun run({seconds(0), other});
    for (const LoopResult& result : run.results) {
      EXPECT_EQ(result.ending, Ending::interrupted);
      EXPECT_EQ(result.session_steps, 1);
    }
    EXPECT_EQ(run.results[0].reason, "run.max_time = 1h");
    EXPECT_LT(run.num_batches, 50);  // of 200: only the rehearsal's and prefetched ones
  }
}

TEST(Evaluation, is_not_ended_by_the_time_of_another_rank_than_the_first) {
  const TimedRun run({std::chrono::seconds(3600), std::chrono::seconds(-3600)});
  for (const LoopResult& result : run.results) {
    EXPECT_EQ(result.ending, Ending::finished);
    EXPECT_EQ(result.session_steps, 2);
    ASSERT_TRUE(result.evaluation);
    EXPECT_EQ(result.evaluation->samples, 400);
  }
}

// Evaluation splits the samples over ranks without padding, also if a rank gets none.
TEST(Evaluation, over_ranks_counts_each_sample_once) {
  const TokenData data(5);
  auto config = tiny_config("gpt2");
  config.model.num_layers = 1;
  config.model.hidden_size = 8;
  config.model.num_heads = 1;
  config.batch.global_batch = "4";
  config.data.eval.kind = "synthetic";  // not opened: the test evaluates `data`
  config.evaluate.metrics = {"accuracy", "perplexity"};
  config.evaluate.batch = 2;
  NamedValues expected;
  for (const int world_size : {1, 2, 4, 7}) {
    on_engine("threads", world_size, [&](Communicator& comm) {
      RankRun run(config, data, comm);
      run.parts.plan.evaluate = config.evaluate;
      const EvaluationReport report = evaluate(run.state, run.parts, data);
      EXPECT_EQ(report.samples, 5);
      if (world_size == 1) expected = report.values;
      ASSERT_EQ(report.values.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(report.values[i].second, expected[i].second, 1e-12) << expected[i].first;
      }
    });
  }
}

TEST(Start, another_model_seed_or_batch_on_a_rank_is_named) {
  const TokenData data(24);
  const auto message_of = [&](const std::function<void(RunConfig&)>& change) {
    std::string message;
    std::mutex mutex;
    on_ranks(2, [&](Communicator& comm) {
      auto config = tiny_config("gpt2");
      config.model.num_layers = 1;
      config.model.hidden_size = 8;
      config.model.num_heads = 1;
      config.batch.global_batch = "8";
      if (comm.rank() == 1) change(config);
      RankRun run(config, data, comm);
      try {
        begin_alike(run.state, run.parts);
      } catch (const ConfigError& error) {
        const std::lock_guard lock(mutex);
        message = error.what();
      }
    });
    return message;
  };
  EXPECT_EQ(message_of([](RunConfig&) {}), "");
  const auto expect = [&](const std::string& text, const std::function<void(RunConfig&)>& change) {
    const std::string message = message_of(change);
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  expect(
      "rank 1 has tensor transformer.wte.weight [23, 16] Double, rank 0 has tensor "
      "transformer.wte.weight [23, 8] Double",
      [](RunConfig& config) { config.model.hidden_size = 16; });
  expect("rank 1 has seed 8, rank 0 has seed 7", [](RunConfig& config) { config.run.seed = 8; });
  expect("rank 1 has batch.global_batch 6, rank 0 has batch.global_batch 8",
         [](RunConfig& config) { config.batch.global_batch = "6"; });
  expect("optimizer.kind", [](RunConfig& config) { config.optimizer.kind = "lion"; });
}

TEST(Start, weights_become_rank_0s_and_a_changed_bit_is_found_later) {
  const TokenData data(24);
  auto config = tiny_config("gpt2");
  config.model.num_layers = 1;
  config.model.hidden_size = 8;
  config.model.num_heads = 1;
  config.batch.global_batch = "8";
  config.parallel.check_every = 2;
  on_ranks(2, [&](Communicator& comm) {
    RankRun run(config, data, comm);
    at::Tensor weight = run.objective().parameters[1].tensor.detach();
    if (comm.rank() == 1) weight.fill_(3);
    begin_alike(run.state, run.parts);
    EXPECT_NE(weight.flatten()[0].item<double>(), 3);
    run.step();
    check_weights(run.state, run.parts);
    if (comm.rank() == 1) weight.flatten()[5] += 1e-13;
    check_weights(run.state, run.parts);  // not yet due
    run.step();
    try {
      check_weights(run.state, run.parts);
      ADD_FAILURE() << "nothing was found";
    } catch (const CommError& error) {
      const std::string name = run.objective().parameters[1].name;
      EXPECT_NE(std::string(error.what()).find("at step 2: " + name + " of rank 1"),
                std::string::npos)
          << error.what();
    }
  });
}

}  // namespace
}  // namespace tanren::testing
