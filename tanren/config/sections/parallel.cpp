#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/config/fields.h"
#include "tanren/config/levels.h"
#include "tanren/config/problems.h"

#include <algorithm>

namespace tanren {

void fields(FieldList& add, ParallelOptions& o) {
  add("ranks", &o.ranks, Identity::free,
      "Kind of ranks, which share the samples of a step, and with pipeline the model: processes (a "
      "launcher starts them: tanren launch, torchrun, srun, mpirun), threads (of one process).");
  add("replicas", &o.replicas, Identity::free,
      "threads: replicas of the model, or of each stage, 0 to 1024; 0: as many as there are "
      "devices for, on the CPU as many as the plan expects to be fastest.");
  add("devices", &o.devices, Identity::free,
      "threads: CUDA devices of the ranks, in turn; empty: all there are.");
  add("pipeline", &o.pipeline, Identity::free,
      "Number of stages that the model is cut into, 1 to 1024. Each rank holds one; the ranks of a "
      "stage share the samples. With processes it must divide their number. The results stay the "
      "same.");
  add("pipeline_schedule", &o.pipeline_schedule, Identity::free,
      "pipeline: the order of a stage's forwards and backwards: 1f1b (backwards as early as they "
      "can be: fewer microbatches in memory), gpipe (all forwards first).");
  add("cut_at", &o.cut_at, Identity::free,
      "pipeline: the first block of each later stage, as tanren summary names them; empty: the "
      "plan "
      "cuts so that the slowest stage has the least work.");
  add("backend", &o.backend, Identity::free,
      "processes: auto (nccl where every rank has a CUDA device of its own, else gloo), gloo, "
      "nccl.");
  add("rendezvous", &o.rendezvous, Identity::free,
      "processes: rendezvous address: tcp://host:port (of rank 0) or file:///path (on a disk that "
      "all ranks share); empty: the launcher's.");
  add("timeout", &o.timeout, Identity::free,
      "Seconds that a rank waits for the others, at the start and in a step, before it ends and "
      "names the missing ones; in (0, 1e7].");
  add("bucket_mb", &o.bucket_mb, Identity::free,
      "Gradients that are summed over ranks at once, in MiB, in (0, 65536].");
  add("first_bucket_mb", &o.first_bucket_mb, Identity::free,
      "Size of the bucket that backward completes first, in MiB, so that communication starts "
      "early; at most bucket_mb.");
  add("overlap", &o.overlap, Identity::free,
      "Sum a bucket as soon as backward has filled it, and with zero start forward while weights "
      "still arrive; false: sum after backward, gather before forward.");
  add("compress", &o.compress,
      "Precision in which gradients travel between ranks: none (their own), bf16, fp16 (half the "
      "bytes of fp32, other numbers).");
  add("buffers", &o.buffers,
      "Batch norm's running statistics after each step: mean (over the samples of all ranks), "
      "first (those of the first rank with samples), synchronised (batch norm sees the samples of "
      "all ranks, so the statistics are equal).");
  add("check_every", &o.check_every, Identity::free,
      "Applied steps between checks that the weights of all ranks are equal to the last bit; 0: "
      "only at the start.");
  add("zero", &o.zero, Identity::free,
      "Data that is divided among the ranks: 0 nothing, 1 the optimizer's state, 2 gradients too. "
      "The results stay the same.");
}

namespace {

// tcp://host:port or file:///path
bool is_rendezvous(const std::string& text) {
  const std::string tcp = "tcp://", file = "file:///";
  if (text.rfind(file, 0) == 0) return text.size() > file.size();
  const auto colon = text.rfind(':');
  if (text.rfind(tcp, 0) != 0 || colon <= tcp.size()) return false;
  int64_t port = 0;
  return reads_as(text.substr(colon + 1), port) && port >= 1 && port <= 65535;
}

void check_pipeline(Problems& p, const ParallelOptions& o) {
  p.within("parallel.pipeline", static_cast<double>(o.pipeline), 1, 1024, true);
  p.one_of("parallel.pipeline_schedule", o.pipeline_schedule, {"1f1b", "gpipe"});
  if (o.pipeline == 1) {
    // A run that resumes without stages has these keys in its recorded config, so the advice is a
    // --set.
    const auto unused = [&](const std::string& key, const std::string& way) {
      if (p.changed.count(key) == 0) return;
      p.unused_keys.push_back({key, "parallel.pipeline"});
      p.check(false,
              key + " has no meaning for parallel.pipeline \"1\"; drop it (--set " + way + ")");
    };
    unused("parallel.pipeline_schedule", "parallel.pipeline_schedule=1f1b");
    unused("parallel.cut_at", "'parallel.cut_at=[]'");
  }
  p.check(o.pipeline <= 1 || o.buffers != "synchronised",
          "parallel.buffers \"synchronised\" needs all samples of a microbatch at once, and with "
          "parallel.pipeline stages have them one after the other; take \"mean\" or \"first\"");
}

void check_threads(Problems& p, const RunConfig& config) {
  const ParallelOptions& o = config.parallel;
  if (o.ranks == "processes") {
    p.unused("parallel.", {"replicas", "devices"}, "parallel.ranks", o.ranks);
    return;
  }
  p.within("parallel.replicas", o.replicas, 0, 1024, true);
  std::set<int64_t> seen;
  for (const int64_t device : o.devices) {
    p.within("parallel.devices", device, 0, 1024, false);
    p.check(seen.insert(device).second,
            fmt::format("parallel.devices has {} twice; name each once (more replicas than devices "
                        "take turns on them)",
                        to_text(device)));
  }
  if (o.ranks != "threads") return;
  p.unused("parallel.", {"backend", "rendezvous"}, "parallel.ranks", o.ranks);
  const auto devices = std::ssize(o.devices);
  const int64_t stages = std::max<int64_t>(o.pipeline, 1);
  p.check(o.replicas <= 0 || o.replicas * stages >= devices,
          fmt::format("parallel.devices names {} devices for parallel.replicas {}{}; drop one of "
                      "them, or make them equal",
                      to_text(int64_t{devices}), to_text(o.replicas),
                      stages == 1 ? "" : fmt::format(" of {} stages", to_text(stages))));
  const bool divides = stages == 1 || o.replicas > 0 || devices < stages || devices % stages == 0;
  p.check(divides, fmt::format("parallel.devices names {} devices, which parallel.pipeline {} does "
                               "not divide; drop some of them, or set parallel.replicas",
                               to_text(int64_t{devices}), to_text(stages)));
  const auto device = read_device_name(config.run.device);
  p.check(o.devices.empty() || !device || (device->kind != "cpu" && device->index < 0),
          "parallel.devices and run.device \"" + config.run.device +
              "\" both choose; set run.device = \"auto\", or drop parallel.devices");
}

}  // namespace

void check_parallel(Problems& p, const RunConfig& config) {
  const ParallelOptions& o = config.parallel;
  p.one_of("parallel.ranks", o.ranks, {"processes", "threads"});
  p.one_of("parallel.backend", o.backend, {"auto", "gloo", "nccl"});
  p.check(o.rendezvous.empty() || is_rendezvous(o.rendezvous),
          "parallel.rendezvous \"" + o.rendezvous +
              "\" is no rendezvous; give tcp://host:port, file:///path, or nothing");
  check_pipeline(p, o);
  check_threads(p, config);
  p.check(
      o.timeout > 0 && o.timeout <= 1e7,
      fmt::format("parallel.timeout is {}; it must lie in (0, 1e7] seconds", to_text(o.timeout)));
  const auto size = [&](const char* key, double megabytes) {
    p.check(megabytes > 0 && megabytes <= 65536,
            fmt::format("{} is {}; it must lie in (0, 65536]", key, to_text(megabytes)));
  };
  size("parallel.bucket_mb", o.bucket_mb);
  size("parallel.first_bucket_mb", o.first_bucket_mb);
  p.check(p.changed.count("parallel.first_bucket_mb") == 0 || !(o.first_bucket_mb > o.bucket_mb),
          fmt::format("parallel.first_bucket_mb {} is above parallel.bucket_mb {}; lower it",
                      to_text(o.first_bucket_mb), to_text(o.bucket_mb)));
  p.one_of("parallel.compress", o.compress, {"none", "bf16", "fp16"});
  p.one_of("parallel.buffers", o.buffers, {"mean", "first", "synchronised"});
  p.count("parallel.check_every", o.check_every, 0);
  p.within("parallel.zero", o.zero, 0, 2, true);
  if (o.compress != "bf16" && o.compress != "fp16") return;
  const std::string compress = "parallel.compress \"" + o.compress + "\" ";
  p.check(!has_narrow_weights(config.precision) || properties_of(config.precision).master_weights,
          compress + "has nothing to round where gradients are of 16 bits (precision.level \"" +
              config.precision.level + "\"); drop it");
  p.check(config.precision.mode != "fp64",
          compress + "rounds what precision.mode \"fp64\" keeps exact; drop one of them");
  p.check(o.zero <= 0, fmt::format("{}is for gradients that all ranks get whole, and parallel.zero "
                                   "= {} sends each rank its part; drop one of them",
                                   compress, to_text(o.zero)));
}

}  // namespace tanren
