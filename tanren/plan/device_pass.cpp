#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/plan/passes.h"

namespace tanren {

void plan_device(const Request& request, Plan& plan) {
  const auto& [config, machine, profile] = request;
  std::string device = config.run.device;
  std::string reason = "as asked";
  Source source = request.source("run.device");
  if (device == "auto") {
    source = Source::planned;
    device = machine.num_cuda > 0 ? "cuda:0" : "cpu";
    reason = machine.num_cuda > 0 ? machine.cuda_name + " is there" : "no usable CUDA device";
  }
  if (device == "cuda") device = "cuda:0";
  if (device != "cpu") {
    const int64_t index = std::stoll(device.substr(5));
    if (index >= machine.num_cuda) {
      throw ConfigError("[plan] run.device is " + config.run.device + ", but this machine has " +
                        to_text(machine.num_cuda) +
                        " usable CUDA devices; set run.device = \"cpu\" or \"auto\"");
    }
  }
  plan.device.device = device;
  plan.lines.push_back({"device", device, source, reason});

  const bool asked = config.run.threads > 0;
  plan.device.threads = asked ? config.run.threads : machine.cores;
  plan.lines.push_back({"threads", to_text(plan.device.threads),
                        asked ? Source::asked : Source::planned,
                        asked ? "as asked; this process may use " + to_text(machine.cores) +
                                    (config.run.threads > machine.cores ? ": they take turns" : "")
                              : "the cores this process may use"});
}

}  // namespace tanren
