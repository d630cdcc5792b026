#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/plan/passes.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace tanren {

namespace {

// Share of the machine's memory. The rest is for the program itself, its cached files and other
// programs.
constexpr double kAutomaticShare = 0.9;
// Bytes of the limit that are kept for the small tensors of an update, which must succeed. At most
// a sixteenth of the limit is kept.
constexpr int64_t kReserve = int64_t{16} << 20;

void plan_allocator(const Request& request, Plan& plan) {
  const std::string& asked = request.config.memory.allocator;
  const bool automatic = asked == "auto";
  const bool wanted = automatic ? plan.device.device == "cpu" : asked == "cached";
  const bool sanitized = wanted && request.machine.address_sanitizer;
  plan.memory.cached_allocator = wanted && !sanitized;
  std::string reason =
      "large CPU tensors reuse the pages of the step before, huge ones if there are";
  if (sanitized) {
    reason = "a cache would hide a use after free from the address sanitizer";
  } else if (!wanted) {
    reason = automatic ? "the device's own allocator caches, and CPU tensors are few"
                       : "torch's own for CPU tensors";
  }
  plan.lines.push_back(
      {"allocator", plan.memory.cached_allocator ? "cached" : "default",
       automatic || sanitized ? Source::planned : request.source("memory.allocator"), reason});
}

// The smallest memory of the devices in use; 0 if a driver does not report it.
int64_t smallest_device(const Request& request, const Plan& plan) {
  const auto& known = request.machine.accelerators.bytes;
  std::vector<int64_t> used = plan.parallel.devices;
  if (used.empty()) used = {read_device_name(plan.device.device)->index};
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const int64_t index : used) {
    const auto at = static_cast<size_t>(index);
    smallest = std::min(smallest, at < known.size() ? known[at] : 0);
  }
  return std::max<int64_t>(smallest, 0);
}

// The device's allocator takes its limit as a share. Returns the reason.
std::string plan_device_limit(const Request& request, Plan& plan) {
  const std::string& asked = request.config.memory.limit;
  const int64_t total = smallest_device(request, plan);
  MemoryPlan& memory = plan.memory;
  memory.limit_bytes = total;
  if (asked == "auto") return "what the device has";
  const auto amount = parse_memory(asked);
  const auto of_all = static_cast<double>(total);
  if (amount->bytes == 0) {
    memory.limit_share = amount->share;
    memory.limit_bytes = static_cast<int64_t>(amount->share * of_all);
    return fmt::format("{} of the device's memory, which its allocator obeys", amount->share);
  }
  if (total == 0) {
    throw ConfigError("[plan] memory.limit \"" + asked + "\" is in bytes, and how many " +
                      plan.device.device +
                      " has, its driver does not say; write a share of its memory (\"0.5\")");
  }
  if (amount->bytes > total) {
    memory.limit_share = 1;
    return size_text(amount->bytes) + " is more than the " + size_text(total) +
           " that the device has: all of it";
  }
  memory.limit_share = static_cast<double>(amount->bytes) / of_all;
  memory.limit_bytes = amount->bytes;
  const bool several = plan.parallel.devices.size() > 1;
  return fmt::format(
      "{} of the {} {}, as a share, which its allocator obeys; the context lies beside it",
      to_text(memory.limit_share), several ? "smallest device's" : "device's", size_text(total));
}

void plan_limit(const Request& request, Plan& plan) {
  const std::string& asked = request.config.memory.limit;
  const bool on_cpu = plan.device.device == "cpu";
  const int64_t ranks = std::max<int64_t>(request.machine.local_ranks, 1);  // processes
  plan.memory.ranks_here = plan.parallel.local_ranks;
  const double machine =
      static_cast<double>(request.machine.memory_bytes) / static_cast<double>(on_cpu ? ranks : 1);
  std::string value, reason;
  if (asked == "none") {
    reason = "memory.limit: the operating system decides what is too much";
  } else if (!on_cpu) {
    reason = plan_device_limit(request, plan);
  } else if (asked == "auto") {
    if (plan.memory.cached_allocator) {
      plan.memory.limit_bytes = static_cast<int64_t>(kAutomaticShare * machine);
      reason = "nine tenths of what machine and cgroup allow" +
               std::string(ranks > 1 ? fmt::format(", over {} ranks here", ranks) : "") +
               ": running out is noticed here, not by the kernel's killer";
    } else {
      reason = "torch's own allocator knows no limit";
    }
  } else {
    const auto amount = parse_memory(asked);
    plan.memory.limit_bytes =
        amount->bytes > 0 ? amount->bytes : static_cast<int64_t>(amount->share * machine);
    reason = "tensors and pages kept for them; the program itself takes some 100 MB beside it";
    if (static_cast<double>(plan.memory.limit_bytes) > machine && machine > 0) {
      reason += "; more than the " + bytes_text(machine) + " that machine and cgroup allow";
    }
  }
  if (on_cpu && plan.parallel.thread_ranks() > 1) {
    reason += fmt::format("; the {} {} share it", to_text(plan.parallel.thread_ranks()),
                          plan.parallel.pipeline > 1 ? "ranks" : "replicas");
  }
  plan.memory.reserve_bytes = std::min(kReserve, plan.memory.limit_bytes / 16);
  value = plan.memory.limit_bytes > 0   ? bytes_text(static_cast<double>(plan.memory.limit_bytes))
          : plan.memory.limit_share > 0 ? to_text(plan.memory.limit_share)
                                        : std::string("none");
  plan.memory.own_allocator =
      plan.memory.cached_allocator || (on_cpu && plan.memory.limit_bytes > 0);
  plan.lines.push_back({"memory_limit", value,
                        asked == "auto" ? Source::planned : request.source("memory.limit"),
                        reason});
}

void plan_recompute(const Request& request, Plan& plan) {
  plan.memory.recompute = request.config.memory.recompute;
  if (plan.memory.recompute.empty()) return;
  plan.lines.push_back({"recompute", join(plan.memory.recompute),
                        request.source("memory.recompute"),
                        "these blocks keep their input for backward and nothing else, and are "
                        "computed again there; the gradients are bitwise the same"});
}

void plan_offload(const Request& request, Plan& plan) {
  const auto& asked = request.config.memory.offload;
  if (asked.empty()) return;
  const bool on_cpu = plan.device.device == "cpu";
  if (!on_cpu) plan.memory.offload = asked;
  plan.lines.push_back(
      {"offload", on_cpu ? "none" : join(asked), request.source("memory.offload"),
       on_cpu
           ? "on the CPU activations are in host memory already; memory.recompute keeps fewer"
           : "what these blocks keep for backward waits in pinned host memory (not where they are "
             "recomputed, not tensors below " +
                 size_text(plan.memory.offload_bytes) + "); the gradients are bitwise the same"});
}

void plan_recovery(const Request& request, Plan& plan) {
  const std::string& asked = request.config.memory.recovery;
  const bool coupled = request.profile.couples_samples;
  auto& recovery = plan.memory.recovery;
  recovery = asked != "auto" ? from_word<RecoveryMode>(asked)
             : coupled       ? RecoveryMode::same_split
                             : RecoveryMode::split;
  const bool in_stages = plan.parallel.pipeline > 1;
  const bool in_step = in_stages || plan.parallel.buffers == RankBuffers::synchronised;
  if (in_step && recovery != RecoveryMode::off) recovery = RecoveryMode::evaluation;
  std::string reason;
  if (recovery == RecoveryMode::off) {
    reason = "running out of memory ends the run";
  } else if (in_stages) {
    reason =
        "out of memory in training ends the run: no stage repeats a microbatch alone, since the "
        "others count on it (parallel.pipeline)";
  } else if (in_step) {
    reason =
        "out of memory in training ends the run: no rank repeats a microstep alone where batch "
        "norm "
        "is over all of them (parallel.buffers); an evaluation takes fewer samples at once";
  } else if (recovery == RecoveryMode::same_split) {
    reason =
        std::string("out of memory: free the cache, once more with the same microbatch") +
        (coupled ? " (batch norm sees its microbatch: a smaller one is another computation)" : "");
  } else {
    reason = coupled ? "out of memory: a smaller microbatch, which batch norm sees: the numbers "
                       "change where it happens"
                     : "out of memory: a smaller microbatch for what is missing of the step, the "
                       "global batch and the update stay as they are";
  }
  plan.lines.push_back({"recovery", name(recovery),
                        asked == "auto" || name(recovery) != asked
                            ? Source::planned
                            : request.source("memory.recovery"),
                        reason});
}

void plan_release(const Request& request, Plan& plan) {
  const std::string& asked = request.config.memory.release_cache;
  plan.memory.release_cache = from_word<ReleaseCache>(asked);
  if (asked == "pressure") return;  // the default needs no line
  plan.lines.push_back({"release_cache", asked, request.source("memory.release_cache"),
                        asked == "step"
                            ? "freed memory goes back after each step, which pays for fresh pages"
                            : "freed memory stays for the next step, however little others have"});
}

}  // namespace

void plan_memory(const Request& request, Plan& plan) {
  plan_allocator(request, plan);
  plan_limit(request, plan);
  plan_recompute(request, plan);
  plan_offload(request, plan);
  plan_recovery(request, plan);
  plan_release(request, plan);
}

}  // namespace tanren
