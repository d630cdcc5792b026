#include "tanren/base/text.h"
#include "tanren/config/problems.h"

#include <algorithm>

namespace tanren {

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

void check_threads(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  const ParallelOptions& o = config.parallel;
  if (o.ranks == "processes") {
    p.unused(changed, "parallel.", {"replicas", "devices"}, "parallel.ranks", o.ranks);
    return;
  }
  p.within("parallel.replicas", static_cast<double>(o.replicas), 0, 1024, true);
  std::set<int64_t> seen;
  for (const int64_t device : o.devices) {
    p.within("parallel.devices", static_cast<double>(device), 0, 1024, false);
    p.check(seen.insert(device).second, "parallel.devices has " + to_text(device) +
                                            " twice; name each once (more replicas than devices "
                                            "take turns on them)");
  }
  if (o.ranks != "threads") return;
  p.unused(changed, "parallel.", {"backend", "rendezvous"}, "parallel.ranks", o.ranks);
  const auto devices = std::ssize(o.devices);
  p.check(o.replicas <= 0 || o.replicas >= devices,
          "parallel.devices names " + to_text(int64_t{devices}) +
              " devices for parallel.replicas " + to_text(o.replicas) +
              "; drop one of them, or make them equal");
  p.check(o.devices.empty() || config.run.device == "auto" || config.run.device == "cuda",
          "parallel.devices and run.device \"" + config.run.device +
              "\" both choose; set run.device = \"cuda\", or drop parallel.devices");
}

}  // namespace

void check_parallel(Problems& p, const RunConfig& config, const std::set<std::string>& changed) {
  const ParallelOptions& o = config.parallel;
  p.one_of("parallel.ranks", o.ranks, {"processes", "threads"});
  p.one_of("parallel.backend", o.backend, {"auto", "gloo", "nccl"});
  p.check(o.rendezvous.empty() || is_rendezvous(o.rendezvous),
          "parallel.rendezvous \"" + o.rendezvous +
              "\" is no rendezvous; give tcp://host:port, file:///path, or nothing");
  check_threads(p, config, changed);
  p.check(o.timeout > 0 && o.timeout <= 1e7,
          "parallel.timeout is " + to_text(o.timeout) + "; it must lie in (0, 1e7] seconds");
  const auto size = [&](const char* key, double megabytes) {
    p.check(megabytes > 0 && megabytes <= 65536,
            std::string(key) + " is " + to_text(megabytes) + "; it must lie in (0, 65536]");
  };
  size("parallel.bucket_mb", o.bucket_mb);
  size("parallel.first_bucket_mb", o.first_bucket_mb);
  p.check(changed.count("parallel.first_bucket_mb") == 0 || !(o.first_bucket_mb > o.bucket_mb),
          "parallel.first_bucket_mb " + to_text(o.first_bucket_mb) +
              " is above parallel.bucket_mb " + to_text(o.bucket_mb) + "; lower it");
  p.one_of("parallel.compress", o.compress, {"none", "bf16", "fp16"});
  p.one_of("parallel.buffers", o.buffers, {"mean", "first", "synchronised"});
  p.count("parallel.check_every", o.check_every, 0);
  p.within("parallel.zero", static_cast<double>(o.zero), 0, 2, true);
  if (o.compress != "bf16" && o.compress != "fp16") return;
  const std::string compress = "parallel.compress \"" + o.compress + "\" ";
  p.check(config.precision.mode != "fp64",
          compress + "rounds what precision.mode \"fp64\" keeps exact; drop one of them");
  p.check(o.zero <= 0, compress +
                           "is for gradients that all ranks get whole, and parallel.zero = " +
                           to_text(o.zero) + " sends each rank its part; drop one of them");
}

}  // namespace tanren
