// Two stages that are processes of one thread each, over Gloo: tanren's update against
// torch.distributed.pipelining (peers/pipeline_torch.py) with the same weights, cut, microbatches
// and schedule, update by update in turn. The time of an update is that of its slower stage: the
// window, the sum of tied gradients, the norm, AdamW. No dropout, so both sides have the same first
// loss. TANREN_PEER_PYTHON names a Python with torch and safetensors.
//   pipeline_peer_bench [gpt2|resnet50|all] [bf16|fp32|both] [gpipe|1f1b|both] [pairs]
//                       [default|tuned] [first block of the second stage]
// tuned: PyTorch with fused AdamW, and images channels-last. The block is the plan's if left out.
#include "tanren/comm/gloo.h"
#include "tanren/formats/safetensors.h"
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/paired.h"
#include "benchmarks/peers/peer_ranks.h"
#include "benchmarks/staged_step.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>

namespace tanren::bench {
namespace {

constexpr int kStages = 2;
constexpr int64_t kMicrobatches = 4;
constexpr double kSameLoss = 1e-4;              // of fp32
constexpr std::chrono::seconds kPatience{300};  // an update takes seconds

struct Asked {
  std::string model, mode, schedule, variant, cut;
  int pairs = 8;
};

StepCase staged_case(const Asked& asked) {
  at::manual_seed(1);
  StepCase made =
      asked.model == "gpt2"
          ? gpt2_case(kMicrobatches, 1, 256, "GPT-2 124M, 4 microbatches of 1 × 256 tokens")
          : resnet_case(4 * kMicrobatches, 4, 224,
                        "ResNet-50, 4 microbatches of 4 images of 224 × 224");
  RunConfig& config = made.config;
  if (asked.model == "gpt2") config.model.dropout = 0.0;
  config.precision.mode = asked.mode;
  config.run.threads = 1;
  config.parallel.check_every = 0;
  config.parallel.pipeline = kStages;
  config.parallel.pipeline_schedule = asked.schedule;
  if (!asked.cut.empty()) config.parallel.cut_at = {asked.cut};
  return made;
}

Machine machine_of(int rank) {
  Machine machine;
  machine.rank = machine.local_rank = rank;
  machine.world_size = machine.local_ranks = kStages;
  return machine;
}

// One rank of tanren's side: makes an update for each line read from stdin.
int be_stage(int rank, int port, const Asked& asked) {
  install_cpu_allocator();
  const StepCase chosen = staged_case(asked);
  const StagedPlan planned = plan_stages(chosen.config, chosen.data, machine_of(rank));
  World world;
  world.rank = world.local_rank = rank;
  world.size = world.local_size = kStages;
  world.port = port;
  const std::shared_ptr<Communicator> all = gloo_communicator(world, std::chrono::minutes(10));
  with_mesh(all, planned.plan.parallel, [&](const std::shared_ptr<const Ranks>& ranks) {
    StagedStep stage(chosen.config, chosen.data, planned, planned.plan, ranks);
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      const StageTimes times = stage.step();
      std::cout << fmt::format("{} {:.6f}", times.update, times.loss) << std::endl;
    }
  });
  return 0;
}

struct Update {
  double seconds = 0;  // of the slower stage
  double loss = 0;     // as the last stage has it
};

Update update_of(PeerRanks& stages) {
  Update update;
  for (const std::string& line : stages.answers()) {
    std::istringstream words(line);
    double own = 0;
    words >> own >> update.loss;
    update.seconds = std::max(update.seconds, own);
  }
  return update;
}

std::filesystem::path write_start(const StepCase& chosen) {
  const Task task = build_task(chosen.config, ModelRegistry(), chosen.data);
  TensorMap start;
  for (const auto& [name, tensor] : tensors_of(*task.module)) start.set(name, tensor);
  for (const auto& [name, tensor] : chosen.data.fields()) start.set("batch." + name, tensor);
  auto file = std::filesystem::temp_directory_path() /
              ("tanren-pipeline-" + std::to_string(::getpid()) + ".safetensors");
  write_safetensors(file, start);
  return file;
}

// Both sides, alternating. Each answer of a peer that hangs ends with an exception.
void compare(const Asked& asked, PeerRanks& own, PeerRanks& other) {
  const Update ours = update_of(own), theirs = update_of(other);
  const double apart = std::abs(ours.loss - theirs.loss);
  const bool must_agree = asked.mode == "fp32";
  std::printf("first loss: tanren %.6f, PyTorch %.6f, %.1e apart%s\n", ours.loss, theirs.loss,
              apart,
              !must_agree          ? ""
              : apart <= kSameLoss ? ": the same"
                                   : ": NOT THE SAME");
  const auto our_update = [&] { return update_of(own).seconds; };
  const auto their_update = [&] { return update_of(other).seconds; };
  print("PyTorch / itself (the A/A spread)", pair_up(asked.pairs, their_update, their_update), 1e3,
        "ms");
  const auto against = pair_up(asked.pairs, our_update, their_update);
  print("tanren / torch.distributed.pipelining", against, 1e3, "ms");
  const double goal = asked.mode == "fp32" ? 1.0 : asked.model == "gpt2" ? 0.8 : 0.85;
  std::printf("median ratio %.3f, goal %.2f: %s\n", against.ratio.median, goal,
              against.ratio.median <= goal ? "kept" : "NOT KEPT");
}

void measure(const std::string& python, const Asked& asked) {
  const StepCase chosen = staged_case(asked);
  const std::string cut =
      plan_stages(chosen.config, chosen.data, machine_of(0)).plan.parallel.cut_at.front();
  std::printf(
      "%s, %s, %s, %d stages × 1 thread over Gloo, the second from %s, PyTorch: %s, %d "
      "pairs of updates\n",
      chosen.about, asked.mode.c_str(), asked.schedule.c_str(), kStages, cut.c_str(),
      asked.variant.c_str(), asked.pairs);
  const auto start = write_start(chosen);
  const std::string own_port = std::to_string(free_port()), port = std::to_string(free_port());
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string script = TANREN_SOURCE_DIR "/benchmarks/peers/pipeline_torch.py";
  try {
    PeerRanks own(
        kStages,
        [&](int rank) {
          return std::vector<std::string>{self,        "stage",    std::to_string(rank), own_port,
                                          asked.model, asked.mode, asked.schedule,       cut};
        },
        kPatience);
    PeerRanks other(
        kStages,
        [&](int rank) {
          return std::vector<std::string>{python,
                                          script,
                                          std::to_string(rank),
                                          port,
                                          asked.model,
                                          asked.mode,
                                          asked.schedule,
                                          asked.variant,
                                          std::to_string(kMicrobatches),
                                          cut,
                                          start.string()};
        },
        kPatience);
    compare(asked, own, other);
  } catch (const std::exception& error) {
    std::printf(
        "NOT MEASURED: %s. Over Gloo, torch's batch_isend_irecv was said to hang "
        "(pytorch/PiPPy#1130)\n",
        error.what());
  }
  std::filesystem::remove(start);
  std::fflush(stdout);
}

std::vector<std::string> each_of(const std::string& word, const char* all,
                                 const std::vector<std::string>& words) {
  return word == all ? words : std::vector<std::string>{word};
}

}  // namespace
}  // namespace tanren::bench

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const auto word = bench::words(argc, argv);
  if (word(1, "") == "stage") {
    return bench::be_stage(std::stoi(word(2, "")), std::stoi(word(3, "")),
                           {.model = word(4, ""),
                            .mode = word(5, ""),
                            .schedule = word(6, ""),
                            .variant = "",
                            .cut = word(7, "")});
  }
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  if (python == nullptr) {
    std::puts("skipped: TANREN_PEER_PYTHON names no Python with torch and safetensors");
    return 0;
  }
  for (const auto& model : bench::each_of(word(1, "all"), "all", {"gpt2", "resnet50"})) {
    if (model != "gpt2" && model != "resnet50") {
      std::printf("no model %s; there are gpt2, resnet50\n", model.c_str());
      return 2;
    }
    for (const auto& mode : bench::each_of(word(2, "both"), "both", {"bf16", "fp32"})) {
      for (const auto& schedule : bench::each_of(word(3, "both"), "both", {"gpipe", "1f1b"})) {
        bench::measure(python, {.model = model,
                                .mode = mode,
                                .schedule = schedule,
                                .variant = word(5, "default"),
                                .cut = word(6, ""),
                                .pairs = std::stoi(word(4, "8"))});
      }
    }
  }
  return 0;
}
