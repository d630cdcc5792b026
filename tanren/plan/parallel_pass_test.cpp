#include "tanren/plan/planner.h"

#include "tanren/base/error.h"
#include "tanren/plan/print.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

namespace tanren {
namespace {

// A run of several ranks on machines that are data.
struct Ranks {
  RunConfig config;
  Machine machine;
  ModelProfile profile;

  explicit Ranks(int64_t world = 1, int64_t here = 0) {
    config.run.steps = 10;
    config.model.kind = "own";
    config.batch.global_batch = "512";
    profile.train_samples = 1000;
    profile.metrics = {"accuracy"};
    // 4 MiB, 24 MiB and 60 MiB of fp32 gradients, in the model's order.
    profile.parameters = {{"a", {1 << 20}}, {"b", {6 << 20}}, {"c", {15 << 20}}};
    profile.num_parameters = profile.num_trainable = 22 << 20;
    profile.input_shape = {128};
    profile.tokens = true;
    machine.cores = 8;
    machine.memory_bytes = int64_t{10} << 30;
    machine.world_size = world;
    machine.local_ranks = here > 0 ? here : world;
    if (world > 1) {
      machine.launcher = "torchrun";
      machine.rendezvous = "10.0.0.1:29500";
    }
  }
  static Ranks threads(int64_t replicas, int64_t num_cuda = 0) {
    Ranks ranks;
    ranks.config.parallel.ranks = "threads";
    ranks.config.parallel.replicas = replicas;
    ranks.add_cuda(num_cuda);
    return ranks;
  }
  void add_cuda(int64_t count) {
    machine.accelerators.bytes.assign(static_cast<size_t>(count), 0);
    machine.accelerators.bf16 = true;
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

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "in: " << text << "\nmissing: " << part;
}

TEST(RanksPass, one_rank_has_no_line_of_ranks) {
  const Ranks one;
  const auto plan = one.plan();
  EXPECT_EQ(plan.parallel.backend, Backend::single);
  EXPECT_EQ(plan.parallel.world_size, 1);
  for (const char* key : {"ranks", "backend", "rendezvous", "buckets", "wire", "zero",
                          "check_every", "timeout", "compress", "rank_buffers"}) {
    EXPECT_EQ(one.line(key), "no line") << key;
  }
}

TEST(RanksPass, what_is_asked_of_ranks_and_cannot_act_on_one_is_told) {
  Ranks one;
  one.config.parallel.zero = 1;
  one.config.parallel.compress = "bf16";
  one.config.parallel.timeout = 5;
  const std::string nothing = "does nothing: the run has one rank (tanren launch -n starts more)";
  EXPECT_EQ(one.line("parallel.zero"), "1|" + nothing);
  EXPECT_EQ(one.line("parallel.compress"), "\"bf16\"|" + nothing);
  EXPECT_EQ(one.line("parallel.timeout"), "5.0|" + nothing);
  EXPECT_EQ(one.line("parallel.overlap"), "no line");
  EXPECT_EQ(one.plan().parallel.zero, 0);
  EXPECT_EQ(one.plan().parallel.compress, Compress::none);
}

TEST(RanksPass, processes_are_what_the_launcher_says) {
  Ranks ranks(4);
  ranks.machine.rank = ranks.machine.local_rank = 3;
  const auto plan = ranks.plan();
  EXPECT_EQ(plan.parallel.rank, 3);
  EXPECT_EQ(plan.parallel.world_size, 4);
  EXPECT_EQ(plan.parallel.local_rank, 3);
  EXPECT_EQ(plan.parallel.local_ranks, 4);
  EXPECT_EQ(plan.parallel.replicas, 1);
  EXPECT_EQ(plan.parallel.backend, Backend::gloo);
  EXPECT_EQ(plan.parallel.launcher, "torchrun");
  EXPECT_EQ(plan.parallel.host, "tcp://10.0.0.1:29500");
  EXPECT_EQ(ranks.line("ranks"), "4|processes on 1 machine, launched by torchrun");
  EXPECT_EQ(ranks.line("backend"), "gloo|sums on the CPU, where the run is");
  EXPECT_EQ(ranks.line("rendezvous"),
            "tcp://10.0.0.1:29500|as the launcher says; every rank must reach it");
  EXPECT_EQ(plan.batch.per_rank, 128);
  expect_part(ranks.line("global_batch"), "512 = 4 ranks × 128; 128 = 1 microstep × 128");
  EXPECT_EQ(Ranks(8, 4).line("ranks"),
            "8|processes on 2 machines, 4 of them here, launched by torchrun");
}

TEST(RanksPass, a_rendezvous_place_of_the_config_goes_before_the_launchers) {
  Ranks ranks(2);
  ranks.config.parallel.rendezvous = "file:///shared/meet";
  EXPECT_EQ(ranks.plan().parallel.host, "file:///shared/meet");
  EXPECT_EQ(ranks.line("rendezvous"), "file:///shared/meet|every rank must reach it");
}

TEST(RanksPass, more_ranks_than_samples_are_told) {
  Ranks ranks(4);
  ranks.config.batch.global_batch = "3";
  EXPECT_EQ(ranks.plan().batch.per_rank, 1);
  expect_part(ranks.line("global_batch"), "3 over 4 ranks: 1 of them get no sample of it");
}

TEST(RanksPass, threads_divide_the_cores_unless_they_are_asked_for_or_a_ranks_own) {
  Ranks ranks(4);
  EXPECT_EQ(ranks.plan().device.threads, 2);
  EXPECT_EQ(ranks.line("threads"), "2|of each rank: 8 cores over the 4 ranks here");
  ranks.machine.own_cores = true;
  EXPECT_EQ(ranks.plan().device.threads, 8);
  ranks.machine.own_cores = false;
  ranks.config.run.threads = 3;
  EXPECT_EQ(ranks.plan().device.threads, 3);
  ranks.config.run.threads = 0;
  ranks.machine.cores = 2;
  EXPECT_EQ(ranks.line("threads"),
            "1|of each rank: 2 cores over the 4 ranks here, which take turns");
}

TEST(RanksPass, nccl_is_chosen_where_each_rank_has_a_device) {
  Ranks ranks(2);
  ranks.machine.rank = ranks.machine.local_rank = 1;
  ranks.add_cuda(2);
  EXPECT_EQ(ranks.plan().parallel.backend, Backend::nccl);
  EXPECT_EQ(ranks.plan().device.device, "cuda:1");
  EXPECT_EQ(ranks.line("backend"), "nccl|each of 2 ranks here has a CUDA device of its own");
  EXPECT_EQ(ranks.line("device"), "cuda:1|local rank 1 of 2; CUDA devices here: 2");
  ranks.config.parallel.backend = "gloo";
  EXPECT_EQ(ranks.line("backend"), "gloo|as asked; sums take the way over host memory");
  ranks.config.parallel.backend = "auto";
  ranks.config.run.device = "cuda:0";
  EXPECT_EQ(ranks.line("backend"),
            "gloo|2 ranks here share cuda:0 (run.device), and NCCL wants one each");
  ranks.config.run.device = "auto";
  ranks.add_cuda(1);
  EXPECT_EQ(ranks.plan().device.device, "cuda:0");
  EXPECT_EQ(ranks.line("backend"), "gloo|2 ranks here see 1 CUDA device, and NCCL wants one each");
  ranks.config.run.device = "cpu";
  EXPECT_EQ(ranks.plan().parallel.backend, Backend::gloo);
}

TEST(RanksPass, nccl_without_a_cuda_device_is_refused_on_any_number_of_ranks) {
  for (const int64_t world : {1, 2}) {
    Ranks ranks(world);
    ranks.config.parallel.backend = "nccl";
    expect_part(ranks.refusal(), "[plan] parallel.backend is \"nccl\", which sums on CUDA devices");
    ranks.add_cuda(world);
    EXPECT_EQ(ranks.refusal(), "accepted");
    ranks.config.run.device = "cpu";
    expect_part(ranks.refusal(), "the run's device is cpu");
  }
}

TEST(ReplicasPass, small_models_of_sequences_get_a_replica_a_core_and_large_ones_one) {
  Ranks ranks = Ranks::threads(0);
  EXPECT_EQ(ranks.plan().parallel.replicas, 1);
  EXPECT_EQ(ranks.plan().parallel.backend, Backend::single);
  EXPECT_EQ(ranks.plan().device.threads, 8);
  expect_part(ranks.line("ranks"), "1|one replica in this process: 23,068,672 parameters are more");
  ranks.profile.num_parameters = 4'000'000;
  const auto plan = ranks.plan();
  EXPECT_EQ(plan.parallel.replicas, 8);
  EXPECT_EQ(plan.parallel.world_size, 8);
  EXPECT_EQ(plan.parallel.local_ranks, 8);
  EXPECT_EQ(plan.parallel.backend, Backend::threads);
  EXPECT_EQ(plan.device.threads, 1);
  EXPECT_EQ(plan.batch.per_rank, 64);
  expect_part(ranks.line("ranks"), "8|replicas in threads of this process: 4,000,000 parameters");
  EXPECT_EQ(ranks.line("threads"), "1|of each rank: 8 cores over the 8 replicas");
  ranks.profile.num_parameters = 4'000'001;
  EXPECT_EQ(ranks.plan().parallel.replicas, 1);
}

TEST(ReplicasPass, weights_used_once_a_sample_get_one_replica) {
  Ranks ranks = Ranks::threads(0);
  ranks.profile.num_parameters = 1000;
  EXPECT_EQ(ranks.plan().parallel.replicas, 8);
  ranks.profile.tokens = false;  // numbers without an order
  EXPECT_EQ(ranks.plan().parallel.replicas, 1);
  expect_part(ranks.line("ranks"), "1|one replica in this process: weights that are used once");
  ranks.profile.input_shape = {30, 128};  // a sequence of them
  EXPECT_EQ(ranks.plan().parallel.replicas, 8);
  ranks.config.model.kind = "mlp";
  EXPECT_EQ(ranks.plan().parallel.replicas, 1);
  ranks.config.parallel.replicas = 2;  // replicas that are asked for are given
  EXPECT_EQ(ranks.plan().parallel.replicas, 2);
}

TEST(ReplicasPass, convolutions_get_replicas_of_many_pixels) {
  Ranks ranks = Ranks::threads(0);
  ranks.profile.tokens = false;
  ranks.profile.input_shape = {3, 32, 32};
  ranks.profile.parameters = {{"conv", {64, 3, 3, 3}}};
  ranks.profile.num_parameters = 1'000'000;
  ranks.config.run.threads = 4;
  ranks.config.batch.global_batch = "64";
  EXPECT_EQ(ranks.plan().parallel.replicas, 4);  // of 16 samples of 1024 pixels
  ranks.config.batch.global_batch = "63";
  expect_part(ranks.line("ranks"),
              "1|one replica in this process: convolutions over 15,360 pixels");
  ranks.config.batch.global_batch = "64";
  ranks.profile.num_parameters = 1'000'001;
  EXPECT_EQ(ranks.plan().parallel.replicas, 1);
}

TEST(ReplicasPass, there_are_no_more_planned_than_samples_or_threads) {
  Ranks ranks = Ranks::threads(0);
  ranks.profile.num_parameters = 100;
  ranks.config.batch.global_batch = "3";
  EXPECT_EQ(ranks.plan().parallel.replicas, 3);
  EXPECT_EQ(ranks.plan().device.threads, 2);
  ranks.config.run.threads = 2;
  EXPECT_EQ(ranks.plan().parallel.replicas, 2);
  EXPECT_EQ(ranks.plan().device.threads, 1);
  ranks.config.batch.global_batch = "epoch";
  ranks.config.run.threads = 0;
  ranks.machine.cores = 1;
  EXPECT_EQ(ranks.plan().parallel.replicas, 1);
}

TEST(ReplicasPass, as_many_as_asked_share_the_cores) {
  const Ranks ranks = Ranks::threads(4);
  EXPECT_EQ(ranks.plan().parallel.replicas, 4);
  EXPECT_EQ(ranks.plan().device.threads, 2);
  EXPECT_EQ(ranks.line("wire"), "no line");
  EXPECT_TRUE(ranks.plan().parallel.devices.empty());
}

TEST(ReplicasPass, devices_get_a_replica_each_or_take_turns) {
  EXPECT_EQ(Ranks::threads(0, 3).plan().parallel.devices, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(Ranks::threads(2, 3).plan().parallel.devices, (std::vector<int64_t>{0, 1}));
  Ranks ranks = Ranks::threads(0, 3);
  ranks.config.parallel.devices = {2, 1};
  EXPECT_EQ(ranks.plan().parallel.devices, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(ranks.plan().device.device, "cuda:2");
  EXPECT_EQ(ranks.line("ranks"),
            "2|replicas in threads of this process: one on each of cuda:2, cuda:1");
  ranks.config.parallel.replicas = 3;
  EXPECT_EQ(ranks.plan().parallel.devices, (std::vector<int64_t>{2, 1, 2}));
  expect_part(ranks.line("ranks"), "taking turns on cuda:2, cuda:1");
  Ranks named = Ranks::threads(2, 2);
  named.config.run.device = "cuda:1";
  EXPECT_EQ(named.plan().parallel.devices, (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(Ranks::threads(0, 1).plan().parallel.backend, Backend::single);
  EXPECT_EQ(Ranks::threads(0, 1).line("parallel.ranks"), "no line")
      << "the line of the ranks says it";
}

TEST(ReplicasPass, a_device_that_is_not_there_is_refused) {
  Ranks ranks = Ranks::threads(0, 2);
  ranks.config.parallel.devices = {0, 2};
  EXPECT_EQ(ranks.refusal(),
            "[plan] parallel.devices has 2, but this machine has 2 usable CUDA devices; name those "
            "there are, or drop it");
  ranks.add_cuda(0);
  expect_part(ranks.refusal(), "parallel.devices has 0, but this machine has 0");
}

TEST(ReplicasPass, replicas_in_each_of_several_processes_are_refused) {
  Ranks ranks(4);
  ranks.config.parallel.ranks = "threads";
  expect_part(ranks.refusal(),
              "[plan] parallel.ranks is \"threads\", and torchrun started 4 processes");
  ranks.config.parallel.replicas = 2;
  expect_part(ranks.refusal(), "set parallel.ranks = \"processes\", parallel.replicas = 0");
}

TEST(ReplicasPass, each_replica_and_each_process_knows_the_name_of_its_device) {
  const std::vector<std::string> names{"NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"};
  Ranks ranks = Ranks::threads(0, 2);
  ranks.machine.accelerators.names = names;
  EXPECT_EQ(replica_plan(ranks.plan(), 0).device.text(), "cuda:0 (NVIDIA A100-SXM4-40GB)");
  EXPECT_EQ(replica_plan(ranks.plan(), 1).device.text(), "cuda:1 (NVIDIA H100 80GB HBM3)");
  Ranks processes(2);
  processes.add_cuda(2);
  processes.machine.accelerators.names = names;
  processes.machine.rank = processes.machine.local_rank = 1;
  EXPECT_EQ(processes.plan().device.text(), "cuda:1 (NVIDIA H100 80GB HBM3)");
  processes.config.run.device = "cpu";
  EXPECT_EQ(processes.plan().device.text(), "cpu");
}

TEST(ReplicasPass, the_plan_of_a_replica_differs_by_rank_and_device_alone) {
  Ranks ranks = Ranks::threads(0, 2);
  const auto plan = ranks.plan();
  const auto second = replica_plan(plan, 1);
  EXPECT_EQ(second.parallel.rank, 1);
  EXPECT_EQ(second.parallel.local_rank, 1);
  EXPECT_EQ(second.parallel.world_size, 2);
  EXPECT_EQ(second.device.device, "cuda:1");
  EXPECT_EQ(second.device.threads, plan.device.threads);
  EXPECT_EQ(replica_plan(Ranks::threads(3).plan(), 2).device.device, "cpu");
  EXPECT_THROW(replica_plan(plan, 2), ConfigError);
  EXPECT_THROW(replica_plan(plan, -1), ConfigError);
}

TEST(ReductionPass, buckets_are_cut_from_the_end_at_whole_parameters) {
  Ranks ranks(2);
  EXPECT_EQ(
      ranks.line("buckets"),
      "1.0 MiB, then 25 MiB|3 of whole parameters for 88 MiB of gradients, each summed as soon "
      "as backward has filled it");
  ranks.config.parallel.bucket_mb = 28;
  EXPECT_EQ(ranks.plan().parallel.bucket_bytes, 28 << 20);
  expect_part(ranks.line("buckets"), "|2 of whole");
  ranks.config.parallel.first_bucket_mb = ranks.config.parallel.bucket_mb = 88;
  expect_part(ranks.line("buckets"), "|1 for 88 MiB");
  ranks.config.parallel.overlap = false;
  EXPECT_EQ(ranks.line("overlap"), "false|all buckets are summed after backward");
  EXPECT_EQ(ranks.line("buckets").find("as soon as"), std::string::npos);
  ranks.profile.parameters.back().trained = false;
  ranks.profile.num_trainable = 7 << 20;
  ranks.config.parallel.first_bucket_mb = ranks.config.parallel.bucket_mb = 0.5;
  EXPECT_EQ(ranks.plan().parallel.first_bucket_bytes, 1 << 19);
  expect_part(ranks.line("buckets"), "512 KiB, then 512 KiB|2 of whole parameters for 28 MiB");
}

TEST(ReductionPass, the_first_bucket_is_never_larger_than_the_others) {
  Ranks ranks(2);
  ranks.config.parallel.bucket_mb = 0.25;
  EXPECT_EQ(ranks.plan().parallel.first_bucket_bytes, 1 << 18);
}

TEST(ReductionPass, the_wire_carries_what_a_ring_does) {
  Ranks ranks(4);
  EXPECT_EQ(ranks.line("wire"),
            "132 MiB a step|sent by each rank: 2 × 3/4 of the gradients, in a ring; once a step, "
            "however many microsteps");
  ranks.config.precision.mode = "fp64";
  expect_part(ranks.line("wire"), "264 MiB a step|");
  ranks.config.precision.mode = "fp32";
  ranks.config.parallel.compress = "bf16";
  expect_part(ranks.line("wire"), "66 MiB a step|");
  EXPECT_EQ(ranks.line("compress"),
            "bf16|gradients are rounded before they are summed: half of 88 MiB");
  ranks.config.parallel.compress = "none";
  ranks.config.parallel.zero = 1;
  expect_part(ranks.line("wire"), "132 MiB a step|sent by each rank: 3/4 of the gradients, each");
  Ranks threads = Ranks::threads(2);
  threads.config.parallel.compress = "fp16";
  expect_part(threads.line("compress"), "between threads it saves nothing");
}

TEST(ReductionPass, shards_say_what_a_rank_keeps) {
  Ranks ranks(4);
  EXPECT_EQ(ranks.line("zero"), "no line");
  ranks.config.parallel.zero = 1;
  EXPECT_EQ(ranks.line("zero"), "1|of 176 MiB of optimizer state each rank keeps 44 MiB");
  ranks.config.parallel.zero = 2;
  EXPECT_EQ(ranks.line("zero"),
            "2|of 176 MiB of optimizer state each rank keeps 44 MiB, and of 88 MiB of summed "
            "gradients 22 MiB beside the buckets on their way");
  EXPECT_EQ(ranks.plan().parallel.zero, 2);
  ranks.config.batch.microbatch = 32;
  expect_part(ranks.line("zero"), "gradients 22 MiB; until the last microstep all are there");
}

TEST(ReductionPass, optimizers_that_need_whole_parameters_are_not_sharded) {
  for (const int64_t world : {1, 2}) {
    Ranks ranks(world);
    ranks.config.parallel.zero = 1;
    for (const char* kind : {"adamw", "nadam", "radam", "adagrad", "rmsprop", "lion", "sgd"}) {
      ranks.config.optimizer.kind = kind;
      EXPECT_EQ(ranks.refusal(), "accepted") << kind;
    }
    ranks.config.optimizer.kind = "muon";
    expect_part(ranks.refusal(), "optimizer.kind \"muon\" needs whole matrices");
    ranks.config.optimizer.kind = "adafactor";
    expect_part(ranks.refusal(), "optimizer.kind \"adafactor\" needs whole rows and columns");
    ranks.config.optimizer.kind = "adamw";
    ranks.config.optimizer.state = "8bit";  // its blocks lie in one slice each
    EXPECT_EQ(ranks.refusal(), "accepted");
  }
}

TEST(ReductionPass, batch_norm_over_ranks_is_told) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.line("rank_buffers"), "no line");
  ranks.profile.couples_samples = true;
  EXPECT_EQ(
      ranks.line("rank_buffers"),
      "mean|batch norm sees each rank's own share, so that the numbers equal one rank's only "
      "at the same split (\"synchronised\": over all ranks); running statistics become the mean "
      "over all ranks' samples");
  ranks.config.parallel.buffers = "first";
  expect_part(ranks.line("rank_buffers"),
              "running statistics become the first rank's that has samples");
  ranks.profile.couples_samples = false;
  EXPECT_EQ(ranks.line("rank_buffers"),
            "first|running statistics become the first rank's that has samples; the model has no "
            "batch norm");
}

TEST(ReductionPass, synchronised_batch_norm_puts_ranks_in_step_and_says_what_that_costs) {
  Ranks ranks(4);
  ranks.config.parallel.buffers = "synchronised";
  ranks.config.batch.microbatch = 32;
  ranks.profile.couples_samples = true;
  const auto plan = ranks.plan();
  EXPECT_EQ(plan.parallel.buffers, RankBuffers::synchronised);
  EXPECT_FALSE(plan.parallel.overlap);
  EXPECT_EQ(plan.memory.recovery, RecoveryMode::evaluation);
  EXPECT_EQ(
      ranks.line("rank_buffers"),
      "synchronised|batch norm sees the samples of all ranks in a microstep, so that the "
      "numbers are those of one rank with microbatches of 128; its statistics travel in each, "
      "forward and backward");
  expect_part(ranks.line("overlap"), "false|all buckets are summed after backward: in it go batch");
  expect_part(ranks.line("recovery"), "evaluation|out of memory in training ends the run");
  expect_part(ranks.line("microbatch"), "on every rank as many; batch norm couples the samples");
  ranks.config.memory.recovery = "split";
  EXPECT_EQ(ranks.plan().memory.recovery, RecoveryMode::evaluation);
  ranks.config.memory.recovery = "off";
  EXPECT_EQ(ranks.plan().memory.recovery, RecoveryMode::off);
}

TEST(ReductionPass, synchronised_batch_norm_is_left_out_where_there_is_none_or_one_rank) {
  Ranks ranks(2);
  ranks.config.parallel.buffers = "synchronised";
  EXPECT_EQ(ranks.line("rank_buffers"),
            "mean|running statistics become the mean over all ranks' samples; the model has no "
            "batch norm");
  EXPECT_TRUE(ranks.plan().parallel.overlap);
  EXPECT_EQ(ranks.plan().memory.recovery, RecoveryMode::split);
  Ranks one;
  one.profile.couples_samples = true;
  one.config.parallel.buffers = "synchronised";
  expect_part(one.line("parallel.buffers"), "\"synchronised\"|does nothing: the run has one rank");
  EXPECT_EQ(one.plan().parallel.buffers, RankBuffers::mean);
  EXPECT_EQ(one.plan().memory.recovery, RecoveryMode::same_split);
}

TEST(ReductionPass, synchronised_batch_norm_refuses_replicas_that_share_a_device) {
  Ranks replicas = Ranks::threads(4, 2);
  replicas.config.run.device = "cuda";
  replicas.config.parallel.buffers = "synchronised";
  EXPECT_EQ(replicas.refusal(), "accepted") << "without batch norm";
  replicas.profile.couples_samples = true;
  expect_part(
      replicas.refusal(),
      "parallel.buffers = \"synchronised\" with 4 replicas on cuda:0, cuda:1: replicas that "
      "take turns on a device cannot wait for one another");
  replicas.config.parallel.replicas = 2;
  EXPECT_EQ(replicas.refusal(), "accepted");
}

TEST(ReductionPass, buckets_of_replicas_that_share_a_device_do_not_wait_amid_backward) {
  Ranks replicas = Ranks::threads(2, 1);
  replicas.config.run.device = "cuda";
  replicas.config.parallel.zero = 1;
  EXPECT_TRUE(replicas.plan().parallel.overlap);
  replicas.config.parallel.zero = 2;
  EXPECT_FALSE(replicas.plan().parallel.overlap);
  expect_part(replicas.line("overlap"),
              "false|all buckets are summed after backward: with "
              "parallel.zero = 2 it would wait");
  Ranks apart = Ranks::threads(2, 2);
  apart.config.run.device = "cuda";
  apart.config.parallel.zero = 2;
  EXPECT_TRUE(apart.plan().parallel.overlap);
}

TEST(ReductionPass, a_dropout_of_torch_over_ranks_is_told) {
  Ranks ranks(2);
  ranks.profile.torch_dropout = "drop";
  expect_part(ranks.line("microbatch"), "drop is torch's dropout");
}

// The threads of a process would draw from one generator, in any order.
TEST(ReplicasPass, a_dropout_of_torch_has_one_replica_or_is_refused) {
  Ranks planned = Ranks::threads(0);
  planned.profile.num_parameters = 1000;
  EXPECT_EQ(planned.plan().parallel.replicas, 8);
  planned.profile.torch_dropout = "drop";
  expect_part(planned.line("ranks"), "1|one replica in this process: drop is torch's dropout");
  Ranks asked = Ranks::threads(2);
  asked.profile.torch_dropout = "drop";
  expect_part(asked.refusal(), "[plan] 2 replicas in threads, and drop is torch's dropout");
}

TEST(ReductionPass, comparisons_and_the_timeout_are_told_where_there_are_ranks) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.line("timeout"), "no line");
  expect_part(ranks.line("check_every"), "100|applied steps between comparisons of the weights");
  ranks.config.parallel.check_every = 0;
  expect_part(ranks.line("check_every"), "0|weights are compared over ranks at the start alone");
  ranks.config.parallel.timeout = 30;
  EXPECT_EQ(ranks.plan().parallel.timeout_seconds, 30);
  expect_part(ranks.line("timeout"), "30 s|a rank that waits longer ends");
}

TEST(MemoryOfRanks, processes_divide_the_machine_and_replicas_share_the_process) {
  const auto tenths = [](int64_t bytes) { return bytes / 10 * 9; };
  const int64_t all = int64_t{10} << 30;
  Ranks processes(4);
  EXPECT_EQ(processes.plan().memory.ranks_here, 4);
  EXPECT_NEAR(static_cast<double>(processes.plan().memory.limit_bytes),
              static_cast<double>(tenths(all / 4)), 8);
  expect_part(processes.line("memory_limit"), "over 4 ranks here");
  EXPECT_EQ(plan_process_memory(processes.config, processes.machine).limit_bytes,
            processes.plan().memory.limit_bytes);
  EXPECT_EQ(plan_process_memory(processes.config, processes.machine).ranks_here, 4);
  const Ranks threads = Ranks::threads(4);
  EXPECT_EQ(threads.plan().memory.ranks_here, 4);
  EXPECT_EQ(threads.plan().memory.limit_bytes, int64_t{9} << 30);
  expect_part(threads.line("memory_limit"), "the 4 replicas share it");
}

TEST(PrintOfRanks, every_line_stands_in_the_json_once) {
  Ranks ranks(4);
  ranks.config.parallel.zero = 1;
  ranks.config.parallel.timeout = 30;
  const auto plan = ranks.plan();
  const auto json = nlohmann::json::parse(plan_json(plan));
  EXPECT_EQ(json.size(), plan.lines.size());
  EXPECT_EQ(json["ranks"]["value"], "4");
  EXPECT_EQ(json["backend"]["source"], "planned");
  expect_part(plan_text(plan), "processes on 1 machine, launched by torchrun");
}

}  // namespace
}  // namespace tanren
