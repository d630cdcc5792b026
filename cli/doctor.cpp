#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/config/describe.h"
#include "tanren/ops/int8_gemm.h"
#include "tanren/plan/probe_machine.h"
#include "tanren/train/device.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>
#include <torch/headeronly/version.h>

#include <iostream>

namespace tanren::cli {

int doctor(const Arguments& arguments, const Registry& registry) {
  Machine machine = probe_machine();
  probe_accelerators(machine, "auto", registry.accelerators);
  const Accelerators& there = machine.accelerators;
  const std::string int8(int8_kernel_text(int8_kernel(), machine.cpu_amx_int8));
  if (arguments.json) {
    std::cout << json_text(nlohmann::ordered_json{{"tanren", TANREN_VERSION},
                                                  {"libtorch", TORCH_VERSION},
                                                  {"cpu", machine.cpu},
                                                  {"cores", machine.cores},
                                                  {"memory_bytes", machine.memory_bytes},
                                                  {"cpu_bf16", machine.cpu_bf16},
                                                  {"cpu_fp16", machine.cpu_fp16},
                                                  {"cpu_vnni", machine.cpu_vnni},
                                                  {"cpu_amx_int8", machine.cpu_amx_int8},
                                                  {"int8_kernels", int8},
                                                  {"num_" + there.kind, there.count()},
                                                  {there.kind + "_bytes", there.bytes}})
              << "\n";
    return 0;
  }
  std::cout << "tanren " TANREN_VERSION " on libtorch " << TORCH_VERSION << "\n"
            << "cpu      " << machine.cpu << ", " << machine.cores << " cores for this process\n"
            << "memory   " << bytes_text(static_cast<double>(machine.memory_bytes)) << "\n"
            << "bf16     " << (machine.cpu_bf16 ? "in hardware" : "emulated: slower than fp32")
            << "\n"
            << "fp16     " << (machine.cpu_fp16 ? "in hardware" : "emulated: slower than fp32")
            << "\n"
            << "int8     " << int8 << "\n"
            << fmt::format("{:<9}", there.kind)
            << (there.count() > 0 ? fmt::format("{} devices", there.count()) : "none usable")
            << "\n";
  return 0;
}

int help(const Arguments& arguments, const Registry& /*registry*/) {
  std::cout << help_text(arguments.file) << "\n";
  return 0;
}

}  // namespace tanren::cli
