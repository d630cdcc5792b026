#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

#include <algorithm>

namespace tanren {

namespace {

void check_index(const std::string& asked, int64_t index, const Machine& machine,
                 const std::string& advice) {
  if (index < machine.num_cuda) return;
  throw ConfigError(fmt::format("[plan] {}, but this machine has {} usable CUDA devices; {}", asked,
                                to_text(machine.num_cuda), advice));
}

// The CUDA device of this process if run.device names none.
std::string cuda_of_rank(const RunConfig& config, const Machine& machine) {
  const auto& devices = config.parallel.devices;
  if (!devices.empty()) return fmt::format("cuda:{}", to_text(devices.front()));
  return fmt::format("cuda:{}",
                     to_text(machine.local_rank % std::max<int64_t>(machine.num_cuda, 1)));
}

}  // namespace

void plan_device(const Request& request, Plan& plan) {
  const auto& [config, machine, profile] = request;
  for (const int64_t index : config.parallel.devices) {
    check_index(fmt::format("parallel.devices has {}", to_text(index)), index, machine,
                "name those there are, or drop it");
  }
  std::string device = config.run.device;
  std::string reason = "as asked";
  Source source = request.source("run.device");
  const bool any = device == "auto" || device == "cuda";
  if (device == "auto") {
    source = Source::planned;
    device = machine.num_cuda > 0 ? "cuda" : "cpu";
    reason = machine.num_cuda > 0 ? machine.cuda_name + " is there" : "no usable CUDA device";
  }
  if (device == "cuda") device = cuda_of_rank(config, machine);
  if (device != "cpu") {
    check_index("run.device is " + config.run.device, std::stoll(device.substr(5)), machine,
                "set run.device = \"cpu\" or \"auto\"");
    if (any && !config.parallel.devices.empty()) reason = "the first of parallel.devices";
    if (any && machine.local_ranks > 1) {
      reason =
          fmt::format("local rank {} of {}; CUDA devices here: {}", to_text(machine.local_rank),
                      to_text(machine.local_ranks), to_text(machine.num_cuda));
    }
  }
  plan.device.device = device;
  plan.lines.push_back({"device", device, source, reason});
}

void plan_threads(const Request& request, Plan& plan) {
  const auto& [config, machine, profile] = request;
  const bool asked = config.run.threads > 0;
  const int64_t all = asked ? config.run.threads : machine.cores;
  // run.threads counts the threads of a process, which its thread replicas share.
  const int64_t sharers = plan.parallel.replicas > 1   ? plan.parallel.replicas
                          : asked || machine.own_cores ? 1
                                                       : machine.local_ranks;
  plan.device.threads = std::max<int64_t>(all / sharers, 1);
  std::string reason = "the cores this process may use";
  if (asked) {
    reason = fmt::format("as asked; this process may use {}{}", to_text(machine.cores),
                         all > machine.cores ? ": they take turns" : "");
  }
  if (sharers > 1) {
    reason = fmt::format("of each rank: {}{} over the {}{}{}", to_text(all),
                         asked ? " as asked" : " cores", to_text(sharers),
                         plan.parallel.replicas > 1 ? " replicas" : " ranks here",
                         all < sharers ? ", which take turns" : "");
  }
  plan.lines.push_back(
      {"threads", to_text(plan.device.threads), asked ? Source::asked : Source::planned, reason});
}

}  // namespace tanren
