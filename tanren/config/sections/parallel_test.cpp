#include "tanren/config/validate.h"

#include "tanren/config/config_test_util.h"

#include <limits>

namespace tanren {
namespace {

using config_test::error_of;
using config_test::expect_contains;
using config_test::kGood;
using config_test::parse;

TEST(ValidateParallel, refuses_ranks_that_cannot_be_or_keys_that_would_be_ignored) {
  const std::string threads = "parallel.ranks=threads";
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"parallel.ranks=forks"}, "parallel.ranks \"forks\" is unknown; one of processes, threads"},
      {{"parallel.backend=mpi"}, "parallel.backend \"mpi\" is unknown; one of auto, gloo, nccl"},
      {{"parallel.rendezvous=here"}, "parallel.rendezvous \"here\" is no rendezvous; give tcp://"},
      {{"parallel.rendezvous=tcp://host"}, "is no rendezvous"},
      {{"parallel.rendezvous=tcp://:29500"}, "is no rendezvous"},
      {{"parallel.rendezvous=tcp://host:0"}, "is no rendezvous"},
      {{"parallel.rendezvous=tcp://host:65536"}, "is no rendezvous"},
      {{"parallel.rendezvous=tcp://host:29500x"}, "is no rendezvous"},
      {{"parallel.rendezvous=file:///"}, "is no rendezvous"},
      {{"parallel.rendezvous=file://shared"}, "is no rendezvous"},
      {{"parallel.replicas=2"},
       "parallel.replicas has no meaning for parallel.ranks \"processes\""},
      {{"parallel.devices=[0]"},
       "parallel.devices has no meaning for parallel.ranks \"processes\""},
      {{threads, "parallel.replicas=-1"}, "parallel.replicas is -1; it must lie in [0, 1024]"},
      {{threads, "parallel.replicas=5000"}, "parallel.replicas is 5000"},
      {{threads, "parallel.devices=[-1]"}, "parallel.devices is -1"},
      {{threads, "parallel.devices=[0, 1, 0]"}, "parallel.devices has 0 twice; name each once"},
      {{threads, "parallel.devices=[0, 1]", "parallel.replicas=1"},
       "parallel.devices names 2 devices for parallel.replicas 1"},
      {{threads, "parallel.devices=[0]", "run.device=cpu"},
       "parallel.devices and run.device \"cpu\" both choose"},
      {{threads, "parallel.backend=gloo"}, "parallel.backend has no meaning for parallel.ranks"},
      {{threads, "parallel.rendezvous=tcp://a:1024"}, "parallel.rendezvous has no meaning"},
      {{"parallel.timeout=0"}, "parallel.timeout is 0; it must lie in (0, 1e7] seconds"},
      {{"parallel.timeout=1e8"}, "parallel.timeout is 1e+08"},
      {{"parallel.bucket_mb=0"}, "parallel.bucket_mb is 0; it must lie in (0, 65536]"},
      {{"parallel.bucket_mb=1e9"}, "parallel.bucket_mb is 1e+09"},
      {{"parallel.first_bucket_mb=-1"}, "parallel.first_bucket_mb is -1"},
      {{"parallel.first_bucket_mb=30"}, "parallel.first_bucket_mb 30 is above parallel.bucket_mb"},
      {{"parallel.compress=8bit"},
       "parallel.compress \"8bit\" is unknown; one of none, bf16, fp16"},
      {{"parallel.compress=bf16", "precision.mode=fp64"}, "keeps exact; drop one of them"},
      {{"parallel.compress=bf16", "parallel.zero=1"}, "parallel.zero = 1 sends each rank its part"},
      {{"parallel.buffers=last"},
       "parallel.buffers \"last\" is unknown; one of mean, first, synchronised"},
      {{"parallel.check_every=-1"}, "parallel.check_every is -1; it must be at least 0"},
      {{"parallel.pipeline=0"}, "parallel.pipeline is 0; it must lie in [1, 1024]"},
      {{"parallel.pipeline=2000"}, "parallel.pipeline is 2000"},
      {{"parallel.pipeline=2", "parallel.pipeline_schedule=zb"},
       "parallel.pipeline_schedule \"zb\" is unknown; one of 1f1b, gpipe"},
      {{"parallel.pipeline_schedule=gpipe"},
       "parallel.pipeline_schedule has no meaning for parallel.pipeline \"1\"; drop it"},
      {{"parallel.cut_at=[head]"},
       "parallel.cut_at has no meaning for parallel.pipeline \"1\"; drop it (--set "
       "'parallel.cut_at=[]')"},
      {{"parallel.pipeline=2", "parallel.buffers=synchronised"},
       "parallel.buffers \"synchronised\" needs all samples of a microbatch at once"},
      {{threads, "parallel.pipeline=2", "parallel.devices=[0, 1, 2]"},
       "parallel.devices names 3 devices, which parallel.pipeline 2 does not divide"},
      {{threads, "parallel.pipeline=2", "parallel.devices=[0, 1, 2]", "parallel.replicas=1"},
       "parallel.devices names 3 devices for parallel.replicas 1 of 2 stages"},
      {{"parallel.zero=3"}, "parallel.zero is 3; it must lie in [0, 2]"},
      {{"parallel.zero=-1"}, "parallel.zero is -1"},
  };
  for (const auto& [sets, part] : cases) {
    const auto error = error_of(kGood, sets);
    expect_contains(error, part);
    EXPECT_EQ(error.find('\n'), std::string::npos) << "one problem, one line: " << error;
  }
}

TEST(ValidateParallel, names_all_that_is_wrong_at_once) {
  const auto error = error_of(kGood, {"parallel.zero=7", "parallel.timeout=-1",
                                      "parallel.backend=mpi", "parallel.replicas=2"});
  for (const char* key :
       {"parallel.zero", "parallel.timeout", "parallel.backend", "parallel.replicas"}) {
    expect_contains(error, key);
  }
}

TEST(ValidateParallel, takes_what_goes_together) {
  const auto threads = parse(kGood, {"parallel.ranks=threads", "parallel.replicas=4",
                                     "parallel.devices=[0, 1]", "parallel.compress=fp16"});
  EXPECT_EQ(threads.parallel.devices, (std::vector<int64_t>{0, 1}));
  for (const char* place : {"tcp://10.0.0.1:29500", "tcp://[::1]:1", "file:///shared/meet"}) {
    EXPECT_EQ(parse(kGood, {std::string("parallel.rendezvous=") + place}).parallel.rendezvous,
              place);
  }
  EXPECT_EQ(parse(kGood, {"parallel.buffers=synchronised"}).parallel.buffers, "synchronised");
  // A bucket smaller than the default first one is accepted: the first one was not asked for.
  EXPECT_EQ(parse(kGood, {"parallel.bucket_mb=0.25"}).parallel.bucket_mb, 0.25);
}

TEST(ValidateParallel, finds_numbers_that_are_not_in_a_config_made_by_a_program) {
  RunConfig config = parse(kGood);
  config.parallel.timeout = std::numeric_limits<double>::quiet_NaN();
  config.parallel.bucket_mb = config.parallel.first_bucket_mb = config.parallel.timeout;
  EXPECT_EQ(validate(config, {"mlp"}).size(), 3u);
}

TEST(ValidateParallel, takes_stages_with_their_schedule_and_cut) {
  const RunConfig plain = parse(kGood);
  EXPECT_EQ(plain.parallel.pipeline, 1);
  EXPECT_EQ(plain.parallel.pipeline_schedule, "1f1b");
  EXPECT_TRUE(plain.parallel.cut_at.empty());
  const RunConfig staged =
      parse(kGood, {"parallel.ranks=threads", "parallel.pipeline=3", "parallel.devices=[0]",
                    "parallel.pipeline_schedule=gpipe", "parallel.cut_at=[layers.1, head]"});
  EXPECT_EQ(staged.parallel.pipeline, 3);
  EXPECT_EQ(staged.parallel.pipeline_schedule, "gpipe");
  EXPECT_EQ(staged.parallel.cut_at, (std::vector<std::string>{"layers.1", "head"}));
}

}  // namespace
}  // namespace tanren
