// The classic example of PyTorch's tutorial on model parallelism: ResNet-50 on batches of 120
// images of 128 × 128, by SGD, over two devices, which here are two cores. In turn: one core, two
// cores in one stage, two stages one after the other (naive: one microbatch), and two stages that
// pipeline splits of 20, by GPipe and by 1F1B. On the tutorial's GPUs naive took 7 % longer than
// one device, and pipelining was 49 % faster than that.
//   pipeline_bench [rounds] [batch] [split] [edge] [fp32|bf16] [first block of the second stage]
// The default block is layer3.0, as in the tutorial. With "plan" the plan chooses the cut.
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/paired.h"
#include "benchmarks/stage_threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tanren::bench {
namespace {

constexpr int kStages = 2;

struct Asked {
  int rounds = 5;
  int64_t batch = 120, split = 20, edge = 128;
  std::string mode = "fp32", cut = "layer3.0";

  int64_t microbatches() const { return (batch + split - 1) / split; }
};

RunConfig one_stage(const StepCase& chosen, const Asked& asked, int64_t threads,
                    int64_t microbatch) {
  RunConfig config = chosen.config;
  config.optimizer.kind = "sgd";
  config.optimizer.learning_rate = 1e-3;
  config.clip.norm = 0;
  config.precision.mode = asked.mode;
  config.run.threads = threads;
  config.batch.microbatch = microbatch;
  return config;
}

RunConfig in_stages(const StepCase& chosen, const Asked& asked, const std::string& schedule,
                    int64_t microbatch) {
  RunConfig config = one_stage(chosen, asked, kStages, microbatch);
  config.parallel.ranks = "threads";
  config.parallel.check_every = 0;
  config.parallel.pipeline = kStages;
  config.parallel.pipeline_schedule = schedule;
  if (asked.cut != "plan") config.parallel.cut_at = {asked.cut};
  return config;
}

// A way to make the update, and the seconds of each round.
struct Way {
  std::string name;
  std::function<void()> update;
  std::vector<double> seconds = {};
};

// Two stages, and the times of their windows relative to a simulation with the stages' own times.
struct Stages {
  Stages(std::string label, const RunConfig& config, const StepCase& chosen, StagedPlan planned,
         int64_t per_window)
      : name(std::move(label)),
        schedule(planned.plan.parallel.schedule),
        microbatches(per_window),
        threads(std::make_unique<StageThreads>(config, chosen.data, std::move(planned))) {}

  void update() {
    const std::vector<StageTimes> times = threads->step();
    const auto count = static_cast<double>(microbatches);
    PipelineDurations durations;
    double window = 0, busy = 0;
    for (const StageTimes& stage : times) {
      durations.forward.push_back(stage.forward / count);
      durations.backward.push_back(stage.backward() / count);
      window = std::max(window, stage.window);
      busy += stage.busy;
    }
    const PipelineTimes simulated = simulate_pipeline(schedule, kStages, microbatches, durations);
    windows.push_back(window);
    beside_simulation.push_back(window / simulated.makespan);
    bubbles.push_back(1 - busy / (kStages * window));
    predicted_bubbles.push_back(simulated.bubble);
  }
  // Without the round that warms up.
  void forget() {
    windows.clear();
    beside_simulation.clear();
    bubbles.clear();
    predicted_bubbles.clear();
  }
  void print() const {
    const Spread ratio = spread(beside_simulation);
    std::printf(
        "%-34s window %.2f s, / simulate on its own action times min %.3f median %.3f max "
        "%.3f: %s; bubble %.1f %%, simulated %.1f %%, of equal stages %.1f %%\n",
        name.c_str(), spread(windows).median, ratio.min, ratio.median, ratio.max,
        ratio.median <= 1.10 ? "kept (1.10)" : "NOT KEPT (1.10)", 100 * spread(bubbles).median,
        100 * spread(predicted_bubbles).median,
        100.0 * (kStages - 1) / static_cast<double>(microbatches + kStages - 1));
  }

  std::string name;
  PipelineSchedule schedule;
  int64_t microbatches;
  std::unique_ptr<StageThreads> threads;
  std::vector<double> windows, beside_simulation, bubbles, predicted_bubbles;
};

Spread ratio_of(const Way& way, const Way& other) {
  std::vector<double> ratios;
  for (size_t i = 0; i < way.seconds.size(); ++i) {
    ratios.push_back(way.seconds[i] / other.seconds[i]);
  }
  return spread(ratios);
}

void print_ratio(const Way& way, const Way& other, const char* goal = "") {
  const Spread ratio = ratio_of(way, other);
  std::printf("%-34s / %-34s min %.3f median %.3f max %.3f%s\n", way.name.c_str(),
              other.name.c_str(), ratio.min, ratio.median, ratio.max, goal);
}

void measure(const Asked& asked) {
  at::manual_seed(1);
  const StepCase chosen = resnet_case(asked.batch, asked.batch, asked.edge, "ResNet-50");
  const GlobalBatch batch = batches_of(chosen.data, asked.batch).front();
  Machine machine;
  machine.cores = kStages;

  struct Staged {
    std::string name;
    RunConfig config;
    StagedPlan planned;
    int64_t microbatches;
  };
  std::vector<Staged> staged;  // all planned before the first thread begins
  const auto plan = [&](const std::string& name, const std::string& schedule, int64_t microbatch,
                        int64_t microbatches) {
    const RunConfig config = in_stages(chosen, asked, schedule, microbatch);
    staged.push_back({name, config, plan_stages(config, chosen.data, machine), microbatches});
  };
  plan("two stages, naive", "gpipe", asked.batch, 1);
  plan("two stages, gpipe", "gpipe", asked.split, asked.microbatches());
  plan("two stages, 1f1b", "1f1b", asked.split, asked.microbatches());
  std::printf(
      "ResNet-50, %ld images of %ld × %ld, splits of %ld, SGD, %s; the second stage begins "
      "at %s; %d rounds\n",
      static_cast<long>(asked.batch), static_cast<long>(asked.edge), static_cast<long>(asked.edge),
      static_cast<long>(asked.split), asked.mode.c_str(),
      staged.front().planned.plan.parallel.cut_at.front().c_str(), asked.rounds);

  std::vector<std::unique_ptr<TanrenStep>> whole;
  std::vector<Way> ways;
  const auto add_whole = [&](const std::string& name, int threads, int64_t microbatch) {
    const RunConfig config = one_stage(chosen, asked, threads, microbatch);
    whole.push_back(std::make_unique<TanrenStep>(config, chosen.data));
    ways.push_back({name, [step = whole.back().get(), &batch, threads] {
                      at::set_num_threads(threads);
                      step->step(batch);
                    }});
  };
  add_whole("one core", 1, asked.batch);
  add_whole("two cores in one stage", 2, asked.batch);
  add_whole("two cores in one stage, in splits", 2, asked.split);
  std::vector<std::unique_ptr<Stages>> stages;
  for (Staged& one : staged) {
    stages.push_back(std::make_unique<Stages>(one.name, one.config, chosen, std::move(one.planned),
                                              one.microbatches));
    ways.push_back({one.name, [pair = stages.back().get()] { pair->update(); }});
  }

  for (Way& way : ways) way.update();
  for (auto& one : stages) one->forget();
  for (int round = 0; round < asked.rounds; ++round) {
    for (Way& way : ways) way.seconds.push_back(seconds(way.update));
  }

  for (const Way& way : ways) {
    const Spread took = spread(way.seconds);
    std::printf("%-34s update min %.2f median %.2f max %.2f s, %.1f images/s\n", way.name.c_str(),
                took.min, took.median, took.max, static_cast<double>(asked.batch) / took.median);
  }
  const Way &one = ways[0], &two = ways[1], &split = ways[2], &naive = ways[3];
  print_ratio(naive, one);
  for (size_t i = 4; i < ways.size(); ++i) {
    const bool kept = ratio_of(ways[i], naive).median <= 0.70;
    print_ratio(ways[i], naive, kept ? ": kept (0.70)" : ": NOT KEPT (0.70)");
    print_ratio(ways[i], two);
    print_ratio(ways[i], split);
  }
  const auto count = static_cast<double>(asked.microbatches());
  std::printf("pipelined / naive of equal stages: %.3f\n",
              (count + kStages - 1) / (kStages * count));
  for (const auto& pair : stages) pair->print();
}

}  // namespace
}  // namespace tanren::bench

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const auto word = bench::words(argc, argv);
  install_cpu_allocator();  // as a run does
  bench::measure({.rounds = std::stoi(word(1, "5")),
                  .batch = std::stoll(word(2, "120")),
                  .split = std::stoll(word(3, "20")),
                  .edge = std::stoll(word(4, "128")),
                  .mode = word(5, "fp32"),
                  .cut = word(6, "layer3.0")});
  return 0;
}
