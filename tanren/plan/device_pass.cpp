#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/config/device_name.h"
#include "tanren/plan/passes.h"

#include <algorithm>

namespace tanren {

namespace {

void check_index(const std::string& asked, int64_t index, const Machine& machine,
                 const std::string& advice) {
  const Accelerators& there = machine.accelerators;
  if (index < there.count()) return;
  throw ConfigError(fmt::format("[plan] {}, but this machine has {} usable {} devices; {}", asked,
                                there.count(), there.label(), advice));
}

// The accelerator of this process if run.device names no index.
int64_t index_of_rank(const RunConfig& config, const Machine& machine) {
  const auto& devices = config.parallel.devices;
  if (!devices.empty()) return devices.front();
  return machine.local_rank % std::max<int64_t>(machine.accelerators.count(), 1);
}

// The workspace in bytes that torch gives cuBLAS for each thread and stream. It is larger on Hopper
// and datacentre Blackwell, and the setting for determinism is as large.
int64_t workspace_of(const Accelerators& there, int64_t index, bool deterministic) {
  if (there.kind != "cuda") return 0;
  const bool is_known = index < std::ssize(there.capabilities);
  const int64_t major = is_known ? there.capabilities[static_cast<size_t>(index)] : 0;
  const bool large = deterministic || major == 0 || major == 9 || major == 10;
  return large ? int64_t{32} << 20 : (int64_t{8} << 20) + (int64_t{128} << 10);
}

}  // namespace

std::string DevicePlan::text() const {
  const auto name = read_device_name(device);
  const bool is_known = name && name->index >= 0 && name->index < std::ssize(names) &&
                        !names[static_cast<size_t>(name->index)].empty();
  if (!is_known) return device;
  return fmt::format("{} ({})", device, names[static_cast<size_t>(name->index)]);
}

void plan_device(const Request& request, Plan& plan) {
  const auto& [config, machine, profile] = request;
  for (const int64_t index : config.parallel.devices) {
    check_index(fmt::format("parallel.devices has {}", to_text(index)), index, machine,
                "name those there are, or drop it");
  }
  std::string device = config.run.device;
  std::string reason = "as asked";
  Source source = request.source("run.device");
  const Accelerators& there = machine.accelerators;
  const bool any = device == "auto" || device == there.kind;
  if (device == "auto") {
    source = Source::planned;
    device = there.count() > 0 ? there.kind : "cpu";
    reason = there.count() > 0 ? device_name(there.kind, 0) + " is there"
                               : fmt::format("no usable {} device", there.label());
  }
  if (device == there.kind) device = device_name(device, index_of_rank(config, machine));
  const auto name = read_device_name(device);
  if (device != "cpu" && (!name || name->kind != there.kind)) {
    throw ConfigError("[plan] run.device is " + device + ", and this program computes on " +
                      there.kind + " and the CPU; set run.device = \"auto\"");
  }
  if (device != "cpu") {
    check_index("run.device is " + config.run.device, name->index, machine,
                "set run.device = \"cpu\" or \"auto\"");
    if (any && !config.parallel.devices.empty()) reason = "the first of parallel.devices";
    if (any && machine.local_ranks > 1) {
      reason = fmt::format("local rank {} of {}; {} devices here: {}", machine.local_rank,
                           machine.local_ranks, there.label(), there.count());
    }
  }
  plan.device.device = device;
  plan.device.names = there.names;
  plan.device.workspace_bytes =
      device == "cpu" ? 0 : workspace_of(there, name->index, config.run.deterministic);
  plan.lines.push_back({"device", device, source, reason});
}

void plan_threads(const Request& request, Plan& plan) {
  const auto& [config, machine, profile] = request;
  const bool asked = config.run.threads > 0;
  const int64_t all = asked ? config.run.threads : machine.cores;
  // run.threads counts the threads of a process, which ranks in it share.
  const int64_t ranks = plan.parallel.thread_ranks();
  const int64_t sharers = ranks > 1 ? ranks : asked || machine.own_cores ? 1 : machine.local_ranks;
  plan.device.threads = std::max<int64_t>(all / sharers, 1);
  std::string reason = "the cores this process may use";
  if (asked) {
    reason = fmt::format("as asked; this process may use {}{}", to_text(machine.cores),
                         all > machine.cores ? ": they take turns" : "");
  }
  if (sharers > 1) {
    reason = fmt::format("of each rank: {}{} over the {}{}{}", to_text(all),
                         asked ? " as asked" : " cores", to_text(sharers),
                         ranks == 1                   ? " ranks here"
                         : plan.parallel.pipeline > 1 ? " ranks"
                                                      : " replicas",
                         all < sharers ? ", which take turns" : "");
  }
  plan.lines.push_back(
      {"threads", to_text(plan.device.threads), asked ? Source::asked : Source::planned, reason});
}

}  // namespace tanren
