// A training loop of your own, from tanren's parts: fp16 autocast with dynamic loss scaling,
// accumulation, clipping, a schedule, guarding, and checkpoints from which it resumes bitwise.
//   own_loop DATA.csv FOLDER [STOP_AFTER]     run it again on FOLDER to resume

#include "tanren/tanren.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

namespace {

using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header

constexpr uint64_t kSeed = 0;
constexpr int64_t kSteps = 200;       // applied updates
constexpr int64_t kGlobalBatch = 32;  // samples per update
constexpr int64_t kMicrobatch = 8;    // samples per forward and backward
constexpr double kPeakRate = 2e-3;
constexpr double kMaxNorm = 1.0;

PrecisionPlan precision() {
  return {.mode = Mode::fp16, .scaling = Scaling::dynamic, .initial_scale = 65536};
}

std::vector<NamedParameter> parameters_of(const torch::nn::Module& module) {
  std::vector<NamedParameter> parameters;
  for (const auto& item : module.named_parameters()) {
    parameters.push_back({item.key(), item.value()});
  }
  return parameters;
}

// All that an update changes, and therefore all that a checkpoint must hold.
struct Training {
  std::shared_ptr<Mlp> model;
  Gradients gradients{model->parameters()};
  std::unique_ptr<Optimizer> optimizer = make_optimizer({}, parameters_of(*model));
  LossScaler scaler{precision()};
  Guard guard{GuardOptions{}};
  int64_t attempt = 0;  // batches consumed, applied or not: a key of dropout
  int64_t step = 0;     // updates applied: drives the schedule
  Cursor cursor;        // position in the data
};

// Gradients of the batch's mean loss, times the loss scale; returns the mean loss, on the device.
at::Tensor accumulate(Training& training, const GlobalBatch& batch) {
  const WindowScope window(precision());  // weights are cast once for all microbatches
  training.gradients.zero();
  at::Tensor loss = at::zeros({});
  for (int64_t begin = 0; begin < batch.local.size(); begin += kMicrobatch) {
    const Batch piece = batch.local.slice(begin, std::min(begin + kMicrobatch, batch.local.size()));
    const RandomScope random(kSeed, training.attempt, piece.ids);
    Term term;
    {
      const AutocastScope autocast(at::kCPU, precision());
      term = cross_entropy(training.model->forward(piece["inputs"]), piece["labels"]);
    }
    // Divides by the count of the whole batch, so that the split into microbatches does not matter.
    const at::Tensor share = term.sum / batch.count(term.count_name);
    training.scaler.scaled(share).backward();
    loss += share.detach();
  }
  return loss;
}

// One update: unscale, measure, read once, judge, then clip and apply, or change nothing.
double update(Training& training, const GlobalBatch& batch) {
  const at::Tensor loss = accumulate(training, batch);
  const auto& flat = training.gradients.flat();
  const Measured measured = unscale_and_measure(flat, training.scaler.scale());
  const std::vector<double> host = read_to_host(at::stack({loss, measured.norm}));
  const Verdict verdict = training.guard.judge({.loss_finite = std::isfinite(host[0]),
                                                .gradients_finite = std::isfinite(host[1]),
                                                .can_back_off = training.scaler.can_back_off(),
                                                .loss = host[0],
                                                .grad_norm = host[1]});
  if (verdict.action == Action::halt) {
    throw RunError("[own_loop] attempt " + std::to_string(training.attempt + 1) + " met a " +
                   std::string(name(verdict.cause)) + "; lower the learning rate");
  }
  if (const auto& spike = training.guard.spike()) {
    std::cout << "attempt " << training.attempt + 1 << " spike: " << spike->what << " "
              << to_text(spike->value) << ", running mean " << to_text(spike->mean) << "\n";
  }
  if (verdict.action == Action::apply) {
    clip_norm_(flat, kMaxNorm);
    const ScheduleOptions schedule{.kind = "cosine", .warmup_steps = 20};
    training.optimizer->step(
        {.learning_rate = learning_rate(schedule, kPeakRate, training.step, kSteps),
         .active = training.gradients.active()});
    ++training.step;
  }
  training.scaler.update(verdict.cause);
  ++training.attempt;
  training.cursor = {batch.epoch, batch.consumed};
  return host[0];
}

void save(const Training& training, const std::filesystem::path& folder) {
  Snapshot snapshot;
  for (const auto& parameter : parameters_of(*training.model)) {
    snapshot.model.tensors.set(parameter.name, parameter.tensor.detach());
  }
  snapshot.optimizer = training.optimizer->state();
  snapshot.run.values = {{"attempt", training.attempt},
                         {"step", training.step},
                         {"epoch", training.cursor.epoch},
                         {"consumed", training.cursor.consumed}};
  snapshot.run.values.merge(training.scaler.state().values);
  snapshot.run.values.merge(training.guard.state().values);
  write_checkpoint(folder, training.step, snapshot, /*keep=*/2);
}

void load(Training& training, const std::filesystem::path& step_folder) {
  const Snapshot snapshot = read_checkpoint(step_folder);
  {
    const at::NoGradGuard no_grad;
    for (const auto& parameter : parameters_of(*training.model)) {
      at::Tensor(parameter.tensor).copy_(snapshot.model.tensors.at(parameter.name));
    }
  }
  training.optimizer->load(snapshot.optimizer);
  training.scaler.load(snapshot.run);
  training.guard.load(snapshot.run);
  training.attempt = value_of<int64_t>(snapshot.run, "attempt");
  training.step = value_of<int64_t>(snapshot.run, "step");
  training.cursor = {value_of<int64_t>(snapshot.run, "epoch"),
                     value_of<int64_t>(snapshot.run, "consumed")};
}

void train(const std::string& file, const std::filesystem::path& folder, int64_t stop_after) {
  const auto data = open_dataset(
      {.kind = "csv", .path = file, .shape = {1, 8, 8}, .scale = 1.0 / 16, .classes = 10}, "data");
  at::manual_seed(kSeed);
  Training training{
      std::make_shared<Mlp>(ModelOptions{.hidden = {64}, .dropout = 0.1}, data->info())};
  if (const auto latest = latest_checkpoint(folder)) {
    load(training, *latest);
    std::cout << "resuming from " << latest->string() << "\n";
  }
  Loader loader(*data, {.global_batch = kGlobalBatch, .seed = kSeed}, training.cursor);
  const int64_t end = std::min(kSteps, training.step + stop_after);
  LeakDetector growth;  // warns once if tensors or graphs accumulate over steps
  while (training.step < end) {
    const int64_t before = training.step;
    const double loss = update(training, loader.next());
    growth.step([] { return cpu_memory_stats().live_bytes; });
    if (training.step == before) {
      std::cout << "attempt " << training.attempt << " skipped, loss scale "
                << training.scaler.scale() << "\n";
    } else if (training.step % 20 == 0 || training.step == end) {
      std::cout << "step " << training.step << " loss " << to_text(loss) << "\n";
    }
  }
  save(training, folder);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t stop_after = argc == 4 ? std::atoll(argv[3]) : kSteps;
  if (argc < 3 || argc > 4 || stop_after < 1) {
    std::cerr << "own_loop DATA.csv FOLDER [STOP_AFTER]\n";
    return 2;
  }
  install_cpu_allocator();  // before the first tensor
  try {
    train(argv[1], argv[2], stop_after);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
