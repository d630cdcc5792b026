// A training loop of your own on several ranks: fp16 autocast, a loss scale and accumulation.
// Gradients are summed over ranks while backward still computes others.
//   tanren launch -n 2 -- own_loop_parallel DATA.csv      torchrun, srun and mpirun work too

#include "tanren/tanren.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <iostream>

namespace {

using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header

constexpr uint64_t kSeed = 0;
constexpr int64_t kSteps = 120;       // applied updates
constexpr int64_t kGlobalBatch = 32;  // samples per update, over all ranks
constexpr int64_t kMicrobatch = 8;    // samples per forward and backward, of one rank
constexpr double kRate = 2e-3;

std::vector<NamedParameter> parameters_of(const torch::nn::Module& module) {
  std::vector<NamedParameter> parameters;
  for (const auto& item : module.named_parameters()) {
    parameters.push_back({item.key(), item.value()});
  }
  return parameters;
}

PrecisionPlan precision() {
  return {.mode = Mode::fp16, .scaling = Scaling::dynamic, .initial_scale = 65536};
}

// Returns this rank's part of the batch's mean loss, on the device. Afterwards the gradients are
// summed over ranks.
at::Tensor accumulate(Mlp& model, Gradients& gradients, Reducer& reducer, const LossScaler& scaler,
                      const GlobalBatch& batch, int64_t attempt) {
  gradients.zero();
  reducer.begin();
  at::Tensor loss = at::zeros({});
  {
    const WindowScope window(precision());
    const int64_t samples = batch.local.size();  // on this rank; may be 0
    for (int64_t begin = 0; begin < samples; begin += kMicrobatch) {
      const int64_t end = std::min(begin + kMicrobatch, samples);
      const Batch piece = batch.local.slice(begin, end);
      const RandomScope random(kSeed, attempt, piece.ids);
      Term term;
      {
        const AutocastScope autocast(at::kCPU, precision());
        term = cross_entropy(model.forward(piece["inputs"]), piece["labels"]);
      }
      // Divides by the count over all ranks, so that their gradients sum to those of a single rank.
      const at::Tensor share = term.sum / batch.count(term.count_name);
      const SyncScope sync(reducer, /*is_last=*/end == samples);
      scaler.scaled(share).backward();
      loss += share.detach();
    }
  }
  reducer.finish();  // on every rank, even one without samples
  return loss;
}

void train(const std::string& file) {
  const auto data = open_dataset(
      {.kind = "csv", .path = file, .shape = {1, 8, 8}, .scale = 1.0 / 16, .classes = 10}, "data");
  const World world = world_of(process_environment());
  at::set_num_threads(std::max(1, at::get_num_threads() / world.local_size));
  const std::shared_ptr<Communicator> comm = make_communicator(world, {});
  const Ranks ranks(comm, ParallelPlan());

  at::manual_seed(kSeed);
  Mlp model(ModelOptions{.hidden = {64}, .dropout = 0.1}, data->info());
  ranks.take_from(model.parameters(), 0);
  Gradients gradients(model.parameters());
  Reducer reducer({&gradients}, *comm);
  const auto optimizer = make_optimizer({}, parameters_of(model));
  LossScaler scaler(precision());

  BatchStream batches(Loader(*data,
                             {.global_batch = kGlobalBatch,
                              .seed = kSeed,
                              .rank = world.rank,
                              .world_size = world.size},
                             {}),
                      ranks);
  int64_t attempt = 0;
  for (int64_t step = 0; step < kSteps; ++attempt) {
    const GlobalBatch batch = batches.next();
    const at::Tensor loss = accumulate(model, gradients, reducer, scaler, batch, attempt);
    // All ranks have the same gradients, so all make the same decision whether to skip.
    const Measured measured = unscale_and_measure(gradients.flat(), scaler.scale());
    const double norm = read_to_host(measured.norm.reshape({1}))[0];
    if (!std::isfinite(norm)) {
      scaler.update(Cause::overflow);
      continue;
    }
    clip_norm_(gradients.flat(), 1.0);
    optimizer->step({.learning_rate = kRate});
    scaler.update(Cause::none);
    ++step;
    const double mean = sum_numbers(*comm, {loss.item<double>()})[0];
    if (world.rank == 0 && step % 20 == 0) {
      std::cout << "step " << step << " loss " << to_text(mean) << "\n";
    }
  }
  TensorMap weights;
  for (const auto& parameter : parameters_of(model)) {
    weights.set(parameter.name, parameter.tensor.detach());
  }
  ranks.check_equal(weights, "at the end");
  if (world.rank == 0) std::cout << "the weights of " << world.size << " ranks are equal\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "own_loop_parallel DATA.csv\n";
    return 2;
  }
  try {
    train(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
