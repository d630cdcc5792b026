#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/config/kinds.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace tanren {

namespace {

// Bounds within which replicas with one core each are faster than one process with all cores, as
// threads_bench measured on two cores (benchmarks/results/ranks_…). Replicas save the fork and join
// of threads in every operator; they cost an additional sum and update of every parameter. So they
// need weights that are used at many places of a sample, and not too many weights.
constexpr int64_t kSmallSequenceModel = 4'000'000;
constexpr int64_t kSmallConvolutionModel = 1'000'000;
constexpr int64_t kPixelsOfConvolutions = 16'384;  // of each replica's samples in a step

bool on_accelerator(const Plan& plan) { return plan.device.device != "cpu"; }

void take_options(const ParallelOptions& o, ParallelPlan& parallel) {
  constexpr double kMebi = 1 << 20;
  const auto bytes = [](double megabytes) {
    return std::max<int64_t>(std::llround(megabytes * kMebi), 1);
  };
  parallel.timeout_seconds = o.timeout;
  parallel.bucket_bytes = bytes(o.bucket_mb);
  parallel.first_bucket_bytes = std::min(bytes(o.first_bucket_mb), parallel.bucket_bytes);
  parallel.overlap = o.overlap;
  parallel.compress = from_word<Compress>(o.compress);
  parallel.buffers = from_word<RankBuffers>(o.buffers);
  parallel.check_every = o.check_every;
  parallel.zero = o.zero;
  parallel.pipeline = o.pipeline;
  parallel.schedule = from_word<PipelineSchedule>(o.pipeline_schedule);
}

// Samples of a step, before plan_batch has run; more ranks than samples would idle.
int64_t samples_of_step(const Request& request) {
  const std::string& text = request.config.batch.global_batch;
  int64_t size = request.profile.train_samples;
  std::from_chars(text.data(), text.data() + text.size(), size);  // "epoch" leaves it unchanged
  return std::max<int64_t>(std::min(size, request.profile.train_samples), 1);
}

std::string devices_text(const std::string& kind, const std::vector<int64_t>& devices) {
  std::string text;
  for (const int64_t i : devices) text += (text.empty() ? "" : ", ") + device_name(kind, i);
  return text;
}

std::string on_devices(const Request& request, Plan& plan) {
  const auto& asked = request.config.parallel;
  const Accelerators& all = request.machine.accelerators;
  const DeviceName device = *read_device_name(request.config.run.device);
  std::vector<int64_t> devices = asked.devices;
  if (devices.empty() && device.index < 0) {
    for (int64_t i = 0; i < all.count(); ++i) devices.push_back(i);
  } else if (devices.empty()) {
    devices.push_back(device.index);
  }
  auto& parallel = plan.parallel;
  const auto there = std::ssize(devices);
  parallel.replicas =
      asked.replicas > 0 ? asked.replicas : std::max<int64_t>(there / parallel.pipeline, 1);
  const int64_t ranks = parallel.replicas * parallel.pipeline;
  if (ranks < there) devices.resize(static_cast<size_t>(ranks));
  for (int64_t i = 0; i < ranks; ++i) {
    parallel.devices.push_back(devices[static_cast<size_t>(i % std::ssize(devices))]);
  }
  return (ranks > there ? "taking turns on " : "one on each of ") + devices_text(all.kind, devices);
}

// Pixels of an image that is [C, H, W]; a size that varies counts as 1.
int64_t pixels_of(const std::vector<int64_t>& shape) {
  if (shape.size() < 2) return 1;
  return std::max<int64_t>(shape[shape.size() - 2], 1) * std::max<int64_t>(shape.back(), 1);
}

std::string on_cores(const Request& request, Plan& plan) {
  const auto& [config, machine, profile] = request;
  auto& replicas = plan.parallel.replicas;
  replicas = config.parallel.replicas;
  if (replicas > 0) return "as asked";
  const int64_t cores = config.run.threads > 0 ? config.run.threads : machine.cores;
  replicas = 1;
  if (plan.parallel.pipeline > 1) return "stages share the cores (parallel.replicas asks for more)";
  if (cores == 1) return "one core has no work for two";
  if (!profile.torch_dropout.empty()) {
    return profile.torch_dropout + " is torch's dropout, whose generator replicas would share";
  }
  const auto dimensions = std::ssize(profile.input_shape) + (profile.tokens ? 1 : 0);
  const ModelKind* kind = model_kind(config.model.kind);
  if ((kind != nullptr && kind->uses_weights_once) || dimensions < 2) {
    return "weights that are used once a sample: adding up a replica's gradients takes longer than "
           "a replica saves";
  }
  const bool convolutions = has_convolutions(profile);
  const int64_t bound = convolutions ? kSmallConvolutionModel : kSmallSequenceModel;
  const std::string size = count_text(profile.num_parameters) + " parameters are ";
  if (profile.num_parameters > bound) {
    return size + "more than " + count_text(bound) +
           ": all cores in one operator are as fast as a replica on each, and take less memory";
  }
  const int64_t samples = samples_of_step(request), most = std::min(cores, samples);
  const int64_t pixels = samples / most * pixels_of(profile.input_shape);
  if (convolutions && pixels < kPixelsOfConvolutions) {
    return "convolutions over " + count_text(pixels) + " pixels a replica and step, fewer than " +
           count_text(kPixelsOfConvolutions) + ": all cores in one operator are as fast";
  }
  replicas = most;
  return size + "at most " + count_text(bound) +
         ": replicas of few cores each are faster than all cores in every small operator";
}

// "2 stages × 3 replicas", "4 stages"
std::string mesh_text(const ParallelPlan& parallel) {
  const int64_t replicas = parallel.data_size();
  const std::string stages = fmt::format("{} stages", to_text(parallel.pipeline));
  return replicas == 1 ? stages : fmt::format("{} × {} replicas", stages, to_text(replicas));
}

void plan_thread_ranks(const Request& request, Plan& plan) {
  const Machine& machine = request.machine;
  if (machine.world_size > 1) {
    throw ConfigError(fmt::format(
        "[plan] parallel.ranks is \"threads\", and {} started {} processes: replicas in each of "
        "several are not offered; start one, or set parallel.ranks = \"processes\"{}{}",
        machine.launcher.empty() ? "a launcher" : machine.launcher, to_text(machine.world_size),
        request.config.parallel.replicas > 0 ? ", parallel.replicas = 0" : "",
        request.config.parallel.devices.empty() ? "" : ", parallel.devices = []"));
  }
  auto& parallel = plan.parallel;
  const std::string reason =
      on_accelerator(plan) ? on_devices(request, plan) : on_cores(request, plan);
  parallel.world_size = parallel.local_ranks = parallel.replicas * parallel.pipeline;
  const bool in_stages = parallel.pipeline > 1;
  const std::string& dropout = request.profile.torch_dropout;
  if (parallel.world_size > 1 && !dropout.empty()) {
    const std::string ranks = to_text(parallel.world_size);
    throw ConfigError(fmt::format(
        "[plan] {} {} in threads, and {} is torch's dropout, which draws from one generator for "
        "all of them in any order: take tanren::dropout, or processes (tanren launch -n {} run …)",
        ranks, in_stages ? "ranks" : "replicas", dropout, ranks));
  }
  const bool asked = request.config.parallel.replicas > 0;
  const std::string what = in_stages ? mesh_text(parallel) + " in threads of this process: "
                           : parallel.replicas > 1 ? "replicas in threads of this process: "
                                                   : "one replica in this process: ";
  plan.lines.push_back({"ranks", to_text(parallel.world_size),
                        asked ? request.source("parallel.replicas") : Source::planned,
                        what + reason});
  if (parallel.world_size == 1) return;
  parallel.backend = Backend::threads;
  plan.lines.push_back({"backend", "threads", Source::planned,
                        "sums inside this process, in the order of the ranks: no network"});
}

// Whether NCCL, which needs a device of its own for each rank, can be used; and why.
std::pair<bool, std::string> nccl_fits(const Request& request, const Plan& plan) {
  const auto& [config, machine, profile] = request;
  if (!on_accelerator(plan)) return {false, "sums on the CPU, where the run is"};
  if (machine.accelerators.kind != "cuda") return {false, "NCCL sums on CUDA devices alone"};
  if (machine.local_ranks == 1) return {true, "the one rank of this machine has a CUDA device"};
  const std::string ranks = fmt::format("{} ranks here", to_text(machine.local_ranks));
  if (read_device_name(config.run.device)->index >= 0) {
    return {false,
            ranks + " share " + plan.device.device + " (run.device), and NCCL wants one each"};
  }
  const int64_t there = machine.accelerators.count();
  if (machine.local_ranks > there) {
    return {false, fmt::format("{} see {} CUDA device{}, and NCCL wants one each", ranks, there,
                               there == 1 ? "" : "s")};
  }
  return {true, "each of " + ranks + " has a CUDA device of its own"};
}

void plan_backend(const Request& request, Plan& plan) {
  const std::string& asked = request.config.parallel.backend;
  auto [fits, reason] = nccl_fits(request, plan);
  plan.parallel.backend = asked != "auto" ? from_word<Backend>(asked)
                          : fits          ? Backend::nccl
                                          : Backend::gloo;
  if (asked == "gloo" && on_accelerator(plan))
    reason = "as asked; sums take the way over host memory";
  plan.lines.push_back({"backend", name(plan.parallel.backend),
                        asked == "auto" ? Source::planned : request.source("parallel.backend"),
                        reason});
  const std::string& rendezvous = request.config.parallel.rendezvous;
  auto& host = plan.parallel.host;
  host = rendezvous;
  if (host.empty() && !request.machine.rendezvous.empty())
    host = "tcp://" + request.machine.rendezvous;
  if (host.empty()) return;
  plan.lines.push_back({"rendezvous", host, rendezvous.empty() ? Source::planned : Source::asked,
                        rendezvous.empty() ? "as the launcher says; every rank must reach it"
                                           : "every rank must reach it"});
}

void plan_processes(const Request& request, Plan& plan) {
  const Machine& machine = request.machine;
  auto& parallel = plan.parallel;
  parallel.rank = machine.rank;
  parallel.world_size = machine.world_size;
  parallel.local_rank = machine.local_rank;
  parallel.local_ranks = machine.local_ranks;
  parallel.launcher = machine.launcher;
  if (request.config.parallel.backend == "nccl" && !on_accelerator(plan)) {
    throw ConfigError(fmt::format(
        "[plan] parallel.backend is \"nccl\", which sums on CUDA devices, and the run's device is "
        "cpu ({} usable CUDA devices here); set parallel.backend = \"gloo\" or \"auto\"",
        machine.accelerators.kind == "cuda" ? machine.accelerators.count() : 0));
  }
  if (machine.world_size % parallel.pipeline != 0) {
    const int64_t least = machine.world_size / parallel.pipeline * parallel.pipeline;
    throw ConfigError(fmt::format(
        "[plan] parallel.pipeline is {}, which does not divide the {} ranks; start {}{}",
        to_text(parallel.pipeline), to_text(machine.world_size),
        least > 0 ? to_text(least) + " or " : "", to_text(least + parallel.pipeline)));
  }
  if (machine.world_size == 1) return;
  const int64_t machines = (machine.world_size + machine.local_ranks - 1) / machine.local_ranks;
  plan.lines.push_back(
      {"ranks", to_text(machine.world_size), Source::planned,
       (machines == 1 ? "processes on 1 machine"
                      : fmt::format("processes on {} machines, {} of them here", to_text(machines),
                                    to_text(machine.local_ranks))) +
           (machine.launcher.empty() ? "" : ", launched by " + machine.launcher) +
           (parallel.pipeline > 1 ? ": " + mesh_text(parallel) : "")});
  plan_backend(request, plan);
}

// Such replicas take turns: torch has one thread for a device's backward, so the backward of one
// replica waits for the backward of the other.
bool replicas_share_a_device(const ParallelPlan& parallel) {
  const std::set<int64_t> devices(parallel.devices.begin(), parallel.devices.end());
  return devices.size() < parallel.devices.size();
}

// Batch norm over all ranks needs all ranks in step. On a device that replicas share this cannot
// work: the backward of one replica waits for the backward of another, which waits for the sums of
// the first.
void settle_batch_norm(const Request& request, ParallelPlan& parallel) {
  if (parallel.buffers != RankBuffers::synchronised) return;
  if (parallel.world_size == 1 || !request.profile.couples_samples) {
    parallel.buffers = RankBuffers::mean;
    return;
  }
  if (replicas_share_a_device(parallel)) {
    const std::set<int64_t> devices(parallel.devices.begin(), parallel.devices.end());
    throw ConfigError(
        fmt::format("[plan] parallel.buffers = \"synchronised\" with {} replicas on {}: replicas "
                    "that take turns on a device cannot wait for one another in backward; set "
                    "parallel.replicas = {}, or start processes",
                    to_text(parallel.replicas),
                    devices_text(request.machine.accelerators.kind,
                                 std::vector<int64_t>(devices.begin(), devices.end())),
                    to_text(std::ssize(devices))));
  }
  parallel.overlap = false;
}

}  // namespace

void plan_ranks(const Request& request, Plan& plan) {
  take_options(request.config.parallel, plan.parallel);
  if (request.config.parallel.ranks == "threads") {
    plan_thread_ranks(request, plan);
  } else {
    plan_processes(request, plan);
  }
  settle_batch_norm(request, plan.parallel);
  // With ZeRO 2 a bucket that is sent during backward waits for an earlier bucket, so replicas that
  // share a device cannot overlap.
  if (plan.parallel.zero == 2 && replicas_share_a_device(plan.parallel)) {
    plan.parallel.overlap = false;
  }
  plan.batch.world_size = plan.parallel.data_size();
}

}  // namespace tanren
