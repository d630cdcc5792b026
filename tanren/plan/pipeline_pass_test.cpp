#include "tanren/base/error.h"
#include "tanren/plan/planner.h"

#include <gtest/gtest.h>

namespace tanren {
namespace {

// Four blocks; the middle ones have twice the work of the others. Each keeps 512 bytes a sample.
ModelBlocks four_blocks() {
  ModelBlocks model;
  for (const char* name : {"embed", "h.0", "h.1", "head"}) {
    BlockCost block;
    block.name = name;
    block.forward = name[1] == '.' ? 20 : 10;
    block.backward = 2 * block.forward;
    block.kept_bytes = 512;
    block.output_bytes = 1024;
    model.blocks.push_back(block);
  }
  return model;
}

// A run in stages on machines that are data.
struct StagedPlans {
  RunConfig config;
  Machine machine;
  ModelProfile profile;

  explicit StagedPlans(int64_t stages, int64_t processes) {
    config.run.steps = 10;
    config.model.kind = "own";
    config.batch.global_batch = "16";
    config.parallel.pipeline = stages;
    profile.train_samples = 64;
    profile.metrics = {"accuracy"};
    profile.parameters = {{"a", {1 << 20}}};
    profile.num_parameters = profile.num_trainable = 1 << 20;
    profile.blocks = four_blocks();
    machine.cores = 8;
    machine.memory_bytes = int64_t{10} << 30;
    machine.world_size = machine.local_ranks = processes;
    if (processes > 1) machine.launcher = "torchrun";
  }
  static StagedPlans threads(int64_t stages, int64_t replicas = 0) {
    StagedPlans plans(stages, 1);
    plans.config.parallel.ranks = "threads";
    plans.config.parallel.replicas = replicas;
    return plans;
  }
  Plan plan() const { return make_plan(config, machine, profile); }
  // "value|reason"
  std::string line(const std::string& key) const {
    for (const auto& line : plan().lines) {
      if (line.key == key) return line.value + "|" + line.reason;
    }
    return "no line";
  }
  std::string refusal() const {
    try {
      plan();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
};

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "in: " << text << "\nmissing: " << part;
}

TEST(PipelinePass, tells_mesh_cut_stages_schedule_and_what_waits) {
  const StagedPlans two(2, 2);
  const Plan plan = two.plan();
  EXPECT_EQ(plan.parallel.pipeline, 2);
  EXPECT_EQ(plan.parallel.cut_at, std::vector<std::string>{"h.1"});
  EXPECT_EQ(plan.parallel.schedule, PipelineSchedule::one_f_one_b);
  EXPECT_EQ(two.line("ranks"), "2|processes on 1 machine, launched by torchrun: 2 stages");
  expect_in(two.line("pipeline"), "2 stages|each rank holds the parameters, gradients and");
  EXPECT_EQ(two.line("pipeline_schedule"),
            "1f1b|8 microbatches in a window; the stages wait for 11 % of it, if they take the "
            "time of their multiply-adds and messages take none");
  EXPECT_EQ(two.line("cut_at"),
            "h.1|the first block of each later stage, so that the slowest stage has the fewest "
            "multiply-adds");
  EXPECT_EQ(two.line("stage_1"),
            "embed to h.0|2 blocks, 50 % of the multiply-adds; 2 microbatches in flight; 2.0 KiB a "
            "microbatch to the next stage, and as much back");
  EXPECT_EQ(two.line("stage_2"),
            "h.1 to head|2 blocks, 50 % of the multiply-adds; 1 microbatch in flight");
  EXPECT_EQ(StagedPlans(1, 2).line("pipeline"), "no line");
}

TEST(PipelinePass, opens_four_microbatches_a_stage) {
  StagedPlans two(2, 2);
  EXPECT_EQ(two.plan().batch.accumulation_steps, 8);
  EXPECT_EQ(two.plan().batch.microbatch, 2);
  expect_in(two.line("global_batch"), "16 = 1 replica × 16; 16 = 8 microsteps × 2");
  expect_in(two.line("microbatch"), "2|8 for 2 stages; 8 microsteps accumulate");
  two.config.batch.global_batch = "5";
  EXPECT_EQ(two.plan().batch.accumulation_steps, 5);
  expect_in(two.line("microbatch"), "1|5 for 2 stages; 5 microsteps accumulate");
  two.config.batch.microbatch = 3;
  EXPECT_EQ(two.plan().batch.microbatch, 3);
  two.config.batch.microbatch = 9;
  EXPECT_EQ(two.plan().batch.microbatch, 5);
  EXPECT_EQ(two.line("microbatch"), "5|a rank's whole share at once; 9 is more than there is");
  EXPECT_EQ(StagedPlans(1, 2).plan().batch.accumulation_steps, 1);
}

// A stage whose evaluation runs out of memory ends the run, and evaluations are not predicted.
TEST(PipelinePass, evaluates_no_more_samples_at_once_than_a_stage_trains_with) {
  StagedPlans two(2, 2);
  EXPECT_EQ(two.plan().evaluate.batch, 2);
  two.config.batch.microbatch = 4;
  EXPECT_EQ(two.plan().evaluate.batch, 4);
  two.config.evaluate.batch = 7;
  EXPECT_EQ(two.plan().evaluate.batch, 7);
}

TEST(PipelinePass, leaves_the_split_to_batch_norm_and_says_what_that_costs) {
  StagedPlans two(2, 2);
  two.profile.couples_samples = true;
  EXPECT_EQ(two.plan().batch.microbatch, 16);
  expect_in(two.line("microbatch"), "it stays whole for batch norm, so the stages work one after");
  expect_in(two.line("pipeline_schedule"), "1 microbatch in a window; the stages wait for 50 %");
}

TEST(PipelinePass, takes_the_schedule_and_the_cut_that_are_asked_for) {
  StagedPlans two(2, 2);
  two.config.parallel.cut_at = {"h.0"};
  two.config.parallel.pipeline_schedule = "gpipe";
  two.config.asked = {"parallel.cut_at"};
  EXPECT_EQ(two.line("cut_at"), "h.0|the first block of each later stage");
  expect_in(two.line("stage_1"), "embed|1 block, 17 % of the multiply-adds");
  expect_in(two.line("stage_1"), "; 8 microbatches in flight");
  EXPECT_EQ(two.plan().parallel.schedule, PipelineSchedule::gpipe);
}

TEST(PipelinePass, makes_a_mesh_of_stages_and_replicas) {
  StagedPlans four(2, 4);
  four.machine.rank = four.machine.local_rank = 1;
  Plan plan = four.plan();
  EXPECT_EQ(plan.parallel.data_size(), 2);
  EXPECT_EQ(plan.parallel.stage(), 0);
  EXPECT_EQ(plan.parallel.replica(), 1);
  EXPECT_EQ(plan.batch.world_size, 2);
  EXPECT_EQ(plan.batch.per_rank, 8);
  expect_in(four.line("ranks"), ": 2 stages × 2 replicas");
  expect_in(four.line("wire"), "sent by the stages of a replica together: 2 × 1/2 of the");

  const StagedPlans threads = StagedPlans::threads(2, 2);
  plan = threads.plan();
  EXPECT_EQ(plan.parallel.world_size, 4);
  EXPECT_EQ(plan.parallel.thread_ranks(), 4);
  EXPECT_EQ(plan.batch.world_size, 2);
  EXPECT_EQ(replica_plan(plan, 3).parallel.stage(), 1);
  EXPECT_EQ(replica_plan(plan, 3).parallel.replica(), 1);
  EXPECT_THROW(replica_plan(plan, 4), ConfigError);
  EXPECT_EQ(threads.line("ranks"), "4|2 stages × 2 replicas in threads of this process: as asked");
  EXPECT_EQ(threads.line("threads"), "2|of each rank: 8 cores over the 4 ranks");
  expect_in(threads.line("memory_limit"), "the 4 ranks share it");
  EXPECT_EQ(StagedPlans::threads(3).plan().parallel.world_size, 3);
}

TEST(PipelinePass, gives_each_thread_rank_a_device) {
  StagedPlans threads = StagedPlans::threads(2);
  threads.config.run.device = "cuda";
  threads.machine.accelerators.bytes = {0, 0, 0, 0, 0};
  const Plan plan = threads.plan();
  EXPECT_EQ(plan.parallel.replicas, 2);
  EXPECT_EQ(plan.parallel.devices, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(replica_plan(plan, 2).device.device, "cuda:2");
  threads.machine.accelerators.bytes = {0};
  EXPECT_EQ(threads.plan().parallel.devices, (std::vector<int64_t>{0, 0}));
}

TEST(PipelinePass, plans_stages_in_processes_as_launched) {
  const StagedPlans one(4, 1);
  EXPECT_EQ(one.plan().parallel.world_size, 4);
  EXPECT_EQ(one.line("ranks"), "4|processes on 1 machine: 4 stages");
}

TEST(PipelinePass, refuses_ranks_that_stages_do_not_divide) {
  EXPECT_EQ(StagedPlans(2, 3).refusal(),
            "[plan] parallel.pipeline is 2, which does not divide the 3 ranks; start 2 or 4");
  EXPECT_EQ(StagedPlans(4, 3).refusal(),
            "[plan] parallel.pipeline is 4, which does not divide the 3 ranks; start 4");
}

TEST(PipelinePass, refuses_cuts_that_the_model_does_not_have) {
  expect_in(StagedPlans(5, 5).refusal(), "parallel.pipeline is 5, and the model has 4 blocks");
  StagedPlans two(2, 2);
  two.config.parallel.cut_at = {"h.2"};
  expect_in(two.refusal(), "parallel.cut_at: the model has no block 'h.2'; did you mean 'h.");
  two.config.parallel.cut_at = {"embed"};
  expect_in(two.refusal(), "'embed' is the first block");
  two.profile.blocks = ModelBlocks();
  expect_in(two.refusal(), "the model is one block, which stages cannot share");
  two.profile.blocks.reset();  // not known yet
  EXPECT_EQ(two.refusal(), "accepted");
}

TEST(PipelinePass, refuses_what_needs_the_whole_model_on_a_rank) {
  StagedPlans two(2, 2);
  two.config.metrics.images_every = 5;
  expect_in(two.refusal(), "metrics.images_every makes pictures on one rank");
  two.config.metrics.images_every = 0;
  two.config.average.kind = "swa";
  two.profile.couples_samples = true;
  expect_in(two.refusal(), "average.buffers is \"estimate\", which runs the whole model");
  two.config.average.buffers = "copy";
  EXPECT_EQ(two.refusal(), "accepted");
  two.profile.objectives.resize(2);
  two.profile.objectives[1].name = "critic";
  expect_in(two.refusal(), "the task has the objectives loss, critic: a run in stages has one");
}

TEST(PipelinePass, refuses_dropout_of_torch_in_threads_alone) {
  StagedPlans threads = StagedPlans::threads(2);
  threads.profile.torch_dropout = "drop";
  expect_in(threads.refusal(), "[plan] 2 ranks in threads, and drop is torch's dropout");
  StagedPlans processes(2, 2);
  processes.profile.torch_dropout = "drop";
  EXPECT_EQ(processes.refusal(), "accepted");
}

TEST(PipelinePass, ends_a_run_that_lacks_memory) {
  StagedPlans two(2, 2);
  EXPECT_EQ(two.plan().memory.recovery, RecoveryMode::evaluation);
  expect_in(two.line("recovery"), "evaluation|out of memory in training ends the run: no stage");
  two.config.memory.recovery = "off";
  EXPECT_EQ(two.plan().memory.recovery, RecoveryMode::off);
}

TEST(PipelinePass, tells_which_keys_need_ranks_that_share_samples) {
  StagedPlans two(2, 2);
  two.config.parallel.zero = 1;
  EXPECT_EQ(two.plan().parallel.zero, 0);
  EXPECT_EQ(two.line("parallel.zero"),
            "1|does nothing: each stage has one rank (more share the samples)");
  EXPECT_EQ(two.line("buckets"), "no line");
  EXPECT_EQ(two.line("parallel.pipeline"), "no line");
  expect_in(two.line("check_every"), "100|applied steps between comparisons");
  StagedPlans four(2, 4);
  four.config.parallel.zero = 1;
  EXPECT_EQ(four.plan().parallel.zero, 1);
  expect_in(four.line("zero"), "of optimizer state the stages of a replica keep together 4.0 MiB");
}

}  // namespace
}  // namespace tanren
