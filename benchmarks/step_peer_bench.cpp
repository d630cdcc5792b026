// Training steps of known models: tanren's update against PyTorch eager with its usual models
// (peers/step_torch.py), from the same weights on the same batch, step by step in turn. Run with
// OMP_WAIT_POLICY=PASSIVE, so that the side that waits does not spin; TANREN_PEER_PYTHON names a
// Python with torch, torchvision, transformers and safetensors.
//   step_peer_bench [MODEL] [bf16|fp32|both] [pairs] [threads] [variant] [DEVICE] [dropout]
// MODEL: bert, gpt2, gpt2_micro, resnet50, pix2pixhd or all.
// variant of the PyTorch side: default, fused (AdamW), channels_last, compile (and fused).
// DEVICE: cpu, cuda; on the latter both sides wait for the device after each step.
// dropout: 0 trains without, on both sides.
#include "tanren/data/device_transfer.h"
#include "tanren/formats/safetensors.h"
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/paired.h"
#include "benchmarks/peers/peer_process.h"
#include "benchmarks/step_cases.h"
#include "benchmarks/tanren_step.h"

#include <ATen/DeviceAccelerator.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <unistd.h>

namespace tanren::bench {
namespace {

struct Asked {
  std::string python, model, mode, threads, variant, device, dropout;
  int pairs = 8;
};

// Writes weights and batch for the PyTorch side. The caller removes the file when that side is
// ready.
std::filesystem::path write_start(const TanrenStep& ours, const OneBatch& data) {
  TensorMap start;
  for (const auto& [name, tensor] : ours.state().model_tensors()) start.set(name, tensor);
  for (const auto& [name, tensor] : data.fields()) start.set("batch." + name, tensor);
  auto file = std::filesystem::temp_directory_path() /
              ("tanren-step-" + std::to_string(::getpid()) + ".safetensors");
  write_safetensors(file, start);
  return file;
}

bool measure(const Asked& asked) {
  const bool on_device = asked.device != "cpu";
  StepCase chosen = *step_case(asked.model, on_device);
  chosen.config.run.device = asked.device;
  if (!asked.dropout.empty()) chosen.config.model.dropout = std::stod(asked.dropout);
  chosen.config.run.threads = std::atoll(asked.threads.c_str());
  chosen.config.precision.mode = asked.mode;
  TanrenStep ours(chosen.config, chosen.data);
  const auto start = write_start(ours, chosen.data);
  const char* peers = asked.model == "pix2pixhd" ? "pix2pixhd_torch.py" : "step_torch.py";
  const std::string script = std::string(TANREN_SOURCE_DIR "/benchmarks/peers/") + peers;
  PeerProcess peer({asked.python, script, asked.model, asked.mode, asked.threads, asked.variant,
                    start.string(), asked.device, asked.dropout});
  std::filesystem::remove(start);
  GlobalBatch batch = batches_of(chosen.data, chosen.data.size())[0];
  const DeviceTransfer transfer(ours.device());
  batch.local = transfer.receive(transfer.send(batch.local));
  std::printf("%s%s, %s on %s, %s thread(s), PyTorch: %s, %d pairs of steps\n", chosen.about,
              asked.dropout.empty() ? "" : (" set to " + asked.dropout).c_str(), asked.mode.c_str(),
              asked.device.c_str(), asked.threads.c_str(), asked.variant.c_str(), asked.pairs);
  std::string told = peer.answer();
  std::printf("first loss: tanren %.4f, PyTorch %s (dropout draws differ)\n",
              ours.step(batch).objectives[0].loss, told.substr(told.find(' ') + 1).c_str());
  const auto own = [&] {
    return seconds([&] {
      ours.step(batch);
      if (on_device) at::accelerator::synchronizeDevice(ours.device().index());
    });
  };
  const auto other = [&] { return peer.block(); };
  const auto same = pair_up(asked.pairs, other, other);
  const auto against = pair_up(asked.pairs, own, other);
  print("PyTorch eager / itself (the A/A spread)", same, 1e3, "ms");
  print("tanren / PyTorch eager", against, 1e3, "ms");
  if (on_device) return true;  // the goals are for the CPU
  const double goal = asked.mode != "fp32" ? 0.8 : asked.model == "pix2pixhd" ? 0.9 : 1.0;
  const bool kept = against.ratio.median <= goal;
  std::printf("median ratio %.3f, goal %.1f: %s\n", against.ratio.median, goal,
              kept ? "kept" : "NOT KEPT");
  return kept;
}

}  // namespace
}  // namespace tanren::bench

int main(int argc, char** argv) {
  using namespace tanren;  // NOLINT(google-build-using-namespace): a program, not a header
  const char* python = std::getenv("TANREN_PEER_PYTHON");
  if (python == nullptr) {
    std::puts("skipped: TANREN_PEER_PYTHON names no Python with torch and transformers");
    return 0;
  }
  const auto word = bench::words(argc, argv);
  std::vector<std::string> models = {word(1, "all")}, modes = {word(2, "both")};
  if (models[0] == "all") models = {"bert", "gpt2", "resnet50", "pix2pixhd"};
  if (modes[0] == "both") modes = {"bf16", "fp32"};
  // Must come before any use of torch, because torch keeps its first answer whether CUDA is
  // available.
  if (word(6, "cpu") != "cpu") probe_cuda();
  install_cpu_allocator();  // as a run does
  for (const auto& model : models) {
    if (!bench::step_case(model)) {
      std::printf("no model %s; there are bert, gpt2, gpt2_micro, resnet50, pix2pixhd\n",
                  model.c_str());
      return 2;
    }
    for (const auto& mode : modes) {
      bench::measure({python, model, mode, word(4, "2"), word(5, "default"), word(6, "cpu"),
                      word(7, ""), std::atoi(word(3, "8").c_str())});
    }
  }
  return 0;
}
