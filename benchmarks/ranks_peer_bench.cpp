// Two ranks that are processes of one thread each, over Gloo: tanren's update of GPT-2 124M against
// PyTorch's DistributedDataParallel (peers/ddp_torch.py), from the same weights on the same batch,
// step by step in turn. The time of a step is that of its slower rank. Also counts tanren's
// reductions: one per bucket and step, with accumulation too. Run with OMP_WAIT_POLICY=PASSIVE;
// TANREN_PEER_PYTHON names a Python with torch, transformers and safetensors.
//   ranks_peer_bench [fp32|bf16] [pairs] [default|tuned] [accumulation…]     (default: 1 and 4)
#include "tanren/comm/gloo.h"
#include "tanren/formats/safetensors.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/train/on_ranks.h"
#include "benchmarks/paired.h"
#include "benchmarks/peers/peer_ranks.h"
#include "benchmarks/step_cases.h"
#include "benchmarks/tanren_step.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <numeric>
#include <sstream>
#include <string>

namespace tanren::bench {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kRows = 1;  // of 256 tokens, per rank and microstep

StepCase gpt_case(int64_t accumulation, const std::string& mode) {
  at::manual_seed(1);
  StepCase made = gpt2_case(kRanks * accumulation * kRows, kRows, 256, "");
  made.config.precision.mode = mode;
  made.config.run.threads = 1;
  made.config.parallel.check_every = 0;
  return made;
}

// One rank of tanren's side: runs a step for each line read from stdin.
int be_rank(int rank, int port, int64_t accumulation, const std::string& mode) {
  install_cpu_allocator();
  const StepCase chosen = gpt_case(accumulation, mode);
  Task task = build_task(chosen.config, ModelRegistry(), chosen.data);
  ModelProfile profile;
  profile_parameters(*task.module, profile);
  profile_objectives(task, profile);
  profile.train_samples = chosen.data.size();
  Machine machine;
  machine.rank = machine.local_rank = rank;
  machine.world_size = machine.local_ranks = kRanks;
  const Plan plan = make_plan(chosen.config, machine, profile);
  Parts parts = build_parts(plan, nullptr);
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = kRanks;
  world.port = port;
  parts.ranks = std::make_shared<Ranks>(
      std::shared_ptr<Communicator>(gloo_communicator(world, std::chrono::minutes(10))),
      plan.parallel);
  RunState state = build_run_state(std::move(task), parts);
  begin_alike(state, parts);

  const int64_t share = chosen.data.size() / kRanks;
  std::vector<int64_t> indices(static_cast<size_t>(chosen.data.size()));
  std::iota(indices.begin(), indices.end(), 0);
  const Batch local = chosen.data.collate(indices).batch.slice(rank * share, (rank + 1) * share);
  const auto all = static_cast<double>(chosen.data.size());
  const GlobalBatch batch{local, {{"samples", all}, {"tokens", all * 256}}, 0, chosen.data.size()};
  Phase& phase = state.phases.front();
  std::cout << "ready" << std::endl;
  int64_t before = 0;
  for (std::string line; std::getline(std::cin, line);) {
    double loss = 0;
    const double took = seconds([&] { loss = update(state, parts, batch)->objectives[0].loss; });
    const int64_t reductions = phase.reducer->num_reductions();
    std::cout << took << " " << loss << " " << reductions - before << " "
              << phase.reducer->num_buckets() << std::endl;
    before = reductions;
  }
  return 0;
}

// Both ranks of one side.
class Pair {
 public:
  struct Answer {
    double seconds = 0, loss = 0;
    int64_t reductions = 0, buckets = 0;
  };

  explicit Pair(const std::function<std::vector<std::string>(int rank)>& command)
      : ranks_(kRanks, command) {}
  Answer step() {
    Answer slowest;
    for (const std::string& line : ranks_.answers()) {
      std::istringstream words(line);
      Answer own;
      words >> own.seconds >> own.loss >> own.reductions >> own.buckets;
      if (own.seconds > slowest.seconds) slowest.seconds = own.seconds;
      slowest.loss += own.loss / kRanks;
      slowest.reductions = own.reductions;
      slowest.buckets = own.buckets;
    }
    return slowest;
  }

 private:
  PeerRanks ranks_;
};

std::filesystem::path write_start(int64_t accumulation, const std::string& mode) {
  const StepCase chosen = gpt_case(accumulation, mode);
  const Task task = build_task(chosen.config, ModelRegistry(), chosen.data);
  TensorMap start;
  for (const auto& [name, tensor] : tensors_of(*task.module)) start.set(name, tensor);
  for (const auto& [name, tensor] : chosen.data.fields()) start.set("batch." + name, tensor);
  auto file = std::filesystem::temp_directory_path() /
              ("tanren-ranks-" + std::to_string(::getpid()) + ".safetensors");
  write_safetensors(file, start);
  return file;
}

void measure(const std::string& python, const std::string& mode, int pairs,
             const std::string& variant, int64_t accumulation) {
  const auto start = write_start(accumulation, mode);
  const std::string steps = std::to_string(accumulation);
  const std::string own_port = std::to_string(free_port()), port = std::to_string(free_port());
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  Pair own([&](int rank) {
    return std::vector<std::string>{self, "rank", std::to_string(rank), own_port, steps, mode};
  });
  const std::string script = TANREN_SOURCE_DIR "/benchmarks/peers/ddp_torch.py";
  Pair other([&](int rank) {
    return std::vector<std::string>{
        python, script,  std::to_string(rank), std::to_string(kRanks), port, steps,
        mode,   variant, start.string()};
  });
  std::filesystem::remove(start);
  const auto ours = own.step(), theirs = other.step();
  std::printf(
      "GPT-2 124M, %d ranks × 1 thread over Gloo, %s microstep(s) of %ld × 256 tokens a rank, "
      "dropout "
      "0.1, %s, DDP: %s, %d pairs of steps\n",
      kRanks, steps.c_str(), static_cast<long>(kRows), mode.c_str(), variant.c_str(), pairs);
  std::printf("first loss: tanren %.4f, DDP %.4f (dropout draws differ)\n", ours.loss, theirs.loss);
  std::printf("reductions of a step: %ld, buckets: %ld: %s\n", static_cast<long>(ours.reductions),
              static_cast<long>(ours.buckets),
              ours.reductions == ours.buckets ? "one each" : "NOT ONE EACH");
  const auto our_step = [&] { return own.step().seconds; };
  const auto their_step = [&] { return other.step().seconds; };
  print("DDP / itself (the A/A spread)", pair_up(pairs, their_step, their_step), 1e3, "ms");
  const auto against = pair_up(pairs, our_step, their_step);
  print("tanren / DDP", against, 1e3, "ms");
  std::printf("median ratio %.3f, goal 1.0: %s\n", against.ratio.median,
              against.ratio.median <= 1 ? "kept" : "NOT KEPT");
}

}  // namespace
}  // namespace tanren::bench

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const auto word = bench::words(argc, argv);
  if (word(1, "") == "rank") {
    return bench::be_rank(std::stoi(word(2, "")), std::stoi(word(3, "")), std::stoll(word(4, "")),
                          word(5, ""));
  }
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  if (python == nullptr) {
    std::puts("skipped: TANREN_PEER_PYTHON names no Python with torch and transformers");
    return 0;
  }
  std::vector<int64_t> accumulations;
  for (int i = 4; i < argc; ++i) accumulations.push_back(std::atoll(argv[i]));
  if (accumulations.empty()) accumulations = {1, 4};
  for (const int64_t accumulation : accumulations) {
    bench::measure(python, word(1, "fp32"), std::stoi(word(2, "8")), word(3, "default"),
                   accumulation);
  }
  return 0;
}
