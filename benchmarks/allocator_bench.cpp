// Measures whole training steps with tanren's CPU allocator (cached huge pages) and with torch's:
// time per step in turn in one process, then peak resident memory, each run in its own process.
// Prints the ratio cached / default of each model beside the A/A spread of the same run.
//   allocator_bench [threads] [pairs] [model]     model: gpt, gpt2-small, resnet18, mlp
#include "tanren/memory/cpu_allocator.h"
#include "tanren/model/couples_samples.h"
#include "tanren/model/registry.h"
#include "tanren/plan/planner.h"
#include "tanren/train/build.h"
#include "tanren/train/train_step.h"
#include "benchmarks/paired.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tanren {

namespace {

struct Workload {
  std::string name;
  ModelOptions model;
  std::string precision;
  DataInfo data;
  int64_t samples = 0, microbatch = 0;  // per step, per forward
  int steps = 1;                        // per block
  int pairs = 0;                        // upper limit; 0: none
  int child_steps = 20;                 // in a process whose memory is measured
};

std::vector<Workload> workloads() {
  const auto tokens = [](int64_t length, int64_t vocab) {
    return DataInfo{.input_shape = {length}, .outputs = vocab, .vocab_size = vocab};
  };
  return {
      {.name = "gpt",
       .model = {.kind = "gpt2",
                 .num_layers = 4,
                 .num_heads = 4,
                 .hidden_size = 256,
                 .context_length = 128},
       .precision = "bf16",
       .data = tokens(128, 256),
       .samples = 32,
       .microbatch = 8},
      {.name = "gpt2-small",
       .model = {.kind = "gpt2", .size = "gpt2"},
       .precision = "bf16",
       .data = tokens(256, 50257),
       .samples = 8,
       .microbatch = 2,
       .pairs = 10,
       .child_steps = 4},
      {.name = "resnet18",
       .model = {.kind = "resnet", .size = "resnet18"},
       .precision = "fp32",
       .data = {.input_shape = {3, 64, 64}, .outputs = 10},
       .samples = 32,
       .microbatch = 32},
      {.name = "mlp",
       .model = {.kind = "mlp", .hidden = {1024, 1024}},
       .precision = "fp32",
       .data = {.input_shape = {784}, .outputs = 10},
       .samples = 256,
       .microbatch = 256,
       .steps = 20,
       .child_steps = 200},
  };
}

void use(bool cached) {
  if (cached) {
    install_cpu_allocator();
  } else {
    uninstall_cpu_allocator();
  }
}

GlobalBatch batch_of(const Workload& work) {
  std::vector<int64_t> shape = {work.samples};
  shape.insert(shape.end(), work.data.input_shape.begin(), work.data.input_shape.end());
  const bool is_text = work.data.vocab_size > 0;
  at::manual_seed(1);
  GlobalBatch batch;
  batch.local.ids = at::arange(work.samples);
  batch.local.fields.set(
      "inputs", is_text ? at::randint(work.data.vocab_size, shape, at::kLong) : at::rand(shape));
  batch.local.fields.set("labels", is_text
                                       ? at::randint(work.data.vocab_size, shape, at::kLong)
                                       : at::randint(work.data.outputs, {work.samples}, at::kLong));
  const auto samples = static_cast<double>(work.samples);
  batch.counts = {{"samples", samples}};
  if (is_text) batch.counts["tokens"] = samples * static_cast<double>(shape[1]);
  return batch;
}

// A training with all tensors from one allocator.
class Training {
 public:
  Training(const Workload& work, int64_t threads, bool cached) : cached_(cached) {
    RunConfig config;
    config.run.steps = 1000000;
    config.run.threads = threads;
    config.run.device = "cpu";
    config.model = work.model;
    config.precision.mode = work.precision;
    config.batch.global_batch = std::to_string(work.samples);
    config.batch.microbatch = work.microbatch;
    config.memory.allocator = cached ? "cached" : "default";
    config.clip.norm = 1.0;
    use(cached);
    batch_ = batch_of(work);
    Task task = ModelRegistry().make(config.model, work.data);
    ModelProfile facts;
    facts.train_samples = 1 << 20;
    facts.couples_samples = couples_samples(*task.module);
    parts_ = build_parts(make_plan(config, Machine{}, facts), nullptr);
    state_ = build_run_state(std::move(task), parts_);
  }

  void steps(int count) {
    use(cached_);
    for (int i = 0; i < count; ++i) update(state_, parts_, batch_);
  }

 private:
  bool cached_;
  GlobalBatch batch_;
  Parts parts_;
  RunState state_;
};

// Peak resident megabytes of a child process that trains this workload.
double megabytes(const char* program, const Workload& work, int64_t threads, bool cached) {
  const std::string count = std::to_string(threads);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program, program, "--child", work.name.c_str(), count.c_str(),
            cached ? "cached" : "default", nullptr);
    ::_exit(127);
  }
  int status = 0;
  rusage counted{};
  ::wait4(child, &status, 0, &counted);
  if (status != 0) {
    std::fprintf(stderr, "allocator_bench: %s failed in its own process\n", work.name.c_str());
    std::exit(1);
  }
  return static_cast<double>(counted.ru_maxrss) / 1024;
}

void measure(const char* program, const Workload& work, int64_t threads, int asked_pairs) {
  const int pairs = work.pairs > 0 ? std::min(work.pairs, asked_pairs) : asked_pairs;
  std::printf("== %s, %lld samples in microbatches of %lld, %s, %d pairs of blocks of %d\n",
              work.name.c_str(), static_cast<long long>(work.samples),
              static_cast<long long>(work.microbatch), work.precision.c_str(), pairs, work.steps);
  {
    Training plain(work, threads, false), plain_too(work, threads, false);
    Training cached(work, threads, true);
    const auto block = [&](Training& training) {
      return [&] { return bench::seconds([&] { training.steps(work.steps); }) / work.steps; };
    };
    const auto same = bench::pair_up(pairs, block(plain_too), block(plain));
    const auto against = bench::pair_up(pairs, block(cached), block(plain));
    bench::print("default / itself (the A/A spread)", same, 1e3, "ms");
    bench::print("cached / default, time of a step", against, 1e3, "ms");
  }
  trim_cpu_memory();
  use(false);
  const int processes = std::min(pairs, 3);
  const auto same = bench::pair_up(
      processes, [&] { return megabytes(program, work, threads, false); },
      [&] { return megabytes(program, work, threads, false); });
  const auto against = bench::pair_up(
      processes, [&] { return megabytes(program, work, threads, true); },
      [&] { return megabytes(program, work, threads, false); });
  bench::print("default / itself, peak resident memory", same, 1, "MB");
  bench::print("cached / default, peak resident memory", against, 1, "MB");
  std::printf("at most 5 %% more memory: %s\n", against.ratio.median <= 1.05 ? "kept" : "NOT KEPT");
  std::fflush(stdout);
}

int benchmark(int argc, char** argv) {
  const std::vector<Workload> all = workloads();
  if (argc == 5 && std::string_view(argv[1]) == "--child") {
    for (const Workload& work : all) {
      if (work.name != argv[2]) continue;
      Training(work, std::atoll(argv[3]), std::string_view(argv[4]) == "cached")
          .steps(work.child_steps);
      return 0;
    }
    return 2;
  }
  const int64_t threads = argc > 1 ? std::atoll(argv[1]) : 2;
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 30;
  const std::string_view only = argc > 3 ? argv[3] : "";
  for (const Workload& work : all) {
    if (only.empty() || only == work.name) measure("/proc/self/exe", work, threads, pairs);
  }
  return 0;
}

}  // namespace

}  // namespace tanren

int main(int argc, char** argv) { return tanren::benchmark(argc, argv); }
