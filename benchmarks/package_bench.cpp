// Packages and TorchScript files against PyTorch (peers/package_torch.py, fused AdamW), from the
// same weights on the same batch, step by step in turn. Run with OMP_WAIT_POLICY=PASSIVE, so that a
// side that waits does not spin; TANREN_PEER_PYTHON names a Python with torch 2.11.0, torchvision,
// transformers and safetensors, and g++ must be there.
//   package_bench [PART] [bf16|fp32|both] [rounds] [threads]
// PART: bert    BERT-base, 8 × 128 tokens, dropout 0.1, beside eager, torch.compile and our `bert`;
//               then the peak of memory of `tanren run`
//       script  ResNet-50 as TorchScript, 8 images of 224 × 224, fp32, beside eager
//       start   from a process's start to the end of its first step, BERT of 2 layers, fp32
//       mlp     the package of an MLP beside a bare loop on libtorch's runner, one thread, fp32
//       all
#include "tanren/base/file.h"
#include "tanren/formats/safetensors.h"
#include "tanren/memory/cpu_allocator.h"
#include "tanren/model/package_manifest.h"
#include "benchmarks/peers/peer_process.h"
#include "benchmarks/step_cases.h"
#include "benchmarks/tanren_step.h"
#include "benchmarks/whole_process.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

namespace tanren::bench {
namespace {

namespace fs = std::filesystem;

struct Asked {
  std::string python, part, mode, threads;
  int rounds = 8;
};

// The files that the Python side has exported, in a folder that the destructor removes.
class Exported {
 public:
  // `what`: bert's number of layers, mlp or resnet50.
  Exported(const Asked& asked, const std::string& what, const std::string& precision)
      : asked_(asked), what_(what), precision_(precision) {
    // The folder's name is unique, because a process keeps the code that it loaded under a name.
    folder_ = fs::temp_directory_path() /
              ("tanren-package-" + what + "-" + precision + "-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    run_whole({asked.python, script(), "export", what, precision, folder_.string()});
  }
  ~Exported() {
    std::error_code none;
    fs::remove_all(folder_, none);
  }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

  const fs::path& folder() const { return folder_; }
  fs::path package() const { return folder_ / "net.package"; }

  OneBatch data(int64_t classes) const {
    TensorMap fields = read_safetensors(folder_ / "batch.safetensors").tensors;
    DataInfo info{.outputs = classes, .class_labels = true};
    info.input_shape = fields.at("inputs").sizes().slice(1).vec();
    const auto samples = static_cast<double>(fields.at("labels").size(0));
    return {info, std::move(fields), {{"samples", samples}}};
  }

  RunConfig config(int64_t samples) const {
    RunConfig config = step_config("package", "", samples);
    config.model.path = package().string();
    set_options(config);
    return config;
  }
  // Sets the options of the Python side.
  void set_options(RunConfig& config) const {
    config.clip.norm = 0;
    config.run.threads = std::atoll(asked_.threads.c_str());
    config.precision.mode = precision_;
  }

  std::vector<std::string> peer(const std::string& variant) const {
    return {asked_.python, script(), variant, what_, precision_, asked_.threads, folder_.string()};
  }

  // The summary of `tanren run` of so many steps.
  nlohmann::json run(int steps) const {
    const fs::path file = folder_ / "run.toml", out = folder_ / "run";
    fs::remove_all(out);
    std::ofstream(file) << "[run]\nsteps = " << steps << "\nthreads = " << asked_.threads
                        << "\n[model]\nkind = \"package\"\npath = \"net.package\"\n[data.train]\n"
                           "kind = \"tensors\"\npath = \"batch.safetensors\"\n[batch]\n"
                           "global_batch = 8\n[optimizer]\nlearning_rate = 1e-5\n";
    run_whole({TANREN_BINARY, "run", file.string(), "--quiet", "--out", out.string()});
    return nlohmann::json::parse(read_file(out / "summary.json"));
  }

 private:
  static std::string script() { return TANREN_SOURCE_DIR "/benchmarks/peers/package_torch.py"; }

  Asked asked_;
  std::string what_, precision_;
  fs::path folder_;
};

struct Side {
  std::function<double()> step;  // its seconds
  std::vector<double> seconds;
};

// All sides in turn, `rounds` times, after a round that does not count.
void go_in_turn(int rounds, const std::vector<Side*>& sides) {
  for (int round = -1; round < rounds; ++round) {
    for (Side* side : sides) {
      const double taken = side->step();
      if (round >= 0) side->seconds.push_back(taken);
    }
  }
}

Paired paired(const Side& a, const Side& b) {
  std::vector<double> ratios, differences;
  for (size_t i = 0; i < a.seconds.size(); ++i) {
    ratios.push_back(a.seconds[i] / b.seconds[i]);
    differences.push_back(a.seconds[i] - b.seconds[i]);
  }
  return {spread(ratios), spread(differences), spread(b.seconds)};
}

void tell(const char* what, double found, double most, const char* unit) {
  std::printf("%s %.3f%s, goal %.3f: %s\n", what, found, unit, most,
              found <= most ? "kept" : "NOT KEPT");
}

Side side_of(TanrenStep& step, const GlobalBatch& batch) {
  return {[&step, &batch] { return seconds([&] { step.step(batch); }); }, {}};
}

// The most memory that a peer tells of goes into `megabytes`.
Side side_of(PeerProcess& peer, double& megabytes) {
  return {[&peer, &megabytes] {
            std::istringstream told(peer.answer());
            double taken = 0, loss = 0, kilobytes = 0;
            told >> taken >> loss >> kilobytes;
            megabytes = kilobytes / 1024;
            return taken;
          },
          {}};
}

void measure_bert(const Asked& asked, const std::string& precision) {
  std::printf("BERT-base, 8 × 128 tokens, dropout 0.1, %s, %s thread(s), %d rounds\n",
              precision.c_str(), asked.threads.c_str(), asked.rounds);
  const Exported exported(asked, "12", precision);
  // Runs while this process is small, because the kernel counts for a child the memory that it has
  // from its parent before exec.
  const double peak = exported.run(4)["peak_memory_bytes"].get<double>() / (1 << 20);
  const OneBatch data = exported.data(2);
  StepCase known = *step_case("bert");
  exported.set_options(known.config);
  TanrenStep package_step(exported.config(data.size()), data), known_step(known.config, known.data);
  const GlobalBatch batch = batches_of(data, data.size())[0];
  const GlobalBatch known_batch = batches_of(known.data, known.data.size())[0];
  double eager_megabytes = 0, other_megabytes = 0, parameters = 0;
  for (const auto& one : package_step.state().task.module->parameters()) {
    parameters += static_cast<double>(one.numel());
  }
  {
    PeerProcess eager_peer(exported.peer("eager")), compile_peer(exported.peer("compile"));
    Side package = side_of(package_step, batch), known_kind = side_of(known_step, known_batch);
    Side eager = side_of(eager_peer, eager_megabytes), again = eager;
    Side compiled = side_of(compile_peer, other_megabytes);
    go_in_turn(asked.rounds, {&package, &eager, &compiled, &known_kind, &again});
    print("PyTorch eager / itself (the A/A spread)", paired(again, eager), 1e3, "ms");
    print("torch.compile / PyTorch eager", paired(compiled, eager), 1e3, "ms");
    print("package / PyTorch eager", paired(package, eager), 1e3, "ms");
    const bool is_compiled = paired(compiled, eager).ratio.median < 1;
    const Paired best = paired(package, is_compiled ? compiled : eager);
    print(is_compiled ? "package / torch.compile" : "package / PyTorch eager", best, 1e3, "ms");
    print("our bert / package", paired(known_kind, package), 1e3, "ms");
    tell("package / the better of both", best.ratio.median, 1.03, "");
  }
  tell("peak resident memory of tanren run", peak, eager_megabytes + 4 * parameters / (1 << 20),
       " MB (eager's and 4 bytes a parameter)");
}

void measure_script(const Asked& asked) {
  std::printf("ResNet-50 as TorchScript, 8 images of 224 × 224, fp32, %s thread(s), %d rounds\n",
              asked.threads.c_str(), asked.rounds);
  const Exported exported(asked, "resnet50", "fp32");
  const OneBatch data = exported.data(1000);
  RunConfig config = exported.config(data.size());
  config.model.kind = "torchscript";
  config.model.path = (exported.folder() / "net.pt").string();
  config.model.loss = "cross_entropy";
  TanrenStep step(config, data);
  const GlobalBatch batch = batches_of(data, data.size())[0];
  double megabytes = 0;
  PeerProcess peer(exported.peer("eager"));
  Side script = side_of(step, batch), eager = side_of(peer, megabytes), again = eager;
  go_in_turn(asked.rounds, {&script, &eager, &again});
  print("PyTorch eager / itself (the A/A spread)", paired(again, eager), 1e3, "ms");
  const Paired against = paired(script, eager);
  print("TorchScript / PyTorch eager", against, 1e3, "ms");
  tell("TorchScript / PyTorch eager", against.ratio.median, 1.0, "");
}

void measure_start(const Asked& asked) {
  const int rounds = std::min(asked.rounds, 3);
  std::printf("start to the end of the first step, BERT of 2 layers, fp32, %d rounds\n", rounds);
  const Exported exported(asked, "2", "fp32");
  const fs::path cache = exported.folder() / "cache";
  const auto first_step = [&] {
    std::vector<std::string> command = exported.peer("compile");
    command.insert(command.begin(), {"env", "TORCHINDUCTOR_CACHE_DIR=" + cache.string()});
    std::optional<PeerProcess> peer;  // its end is not timed
    return seconds([&] { peer.emplace(command).answer(); });
  };
  Side ours{[&] { return exported.run(1)["startup_seconds"].get<double>(); }, {}};
  Side again = ours;
  Side compiled{[&] {
                  fs::remove_all(cache);
                  return first_step();
                },
                {}};
  Side cached{first_step, {}};
  go_in_turn(rounds, {&ours, &compiled, &cached, &again});
  print("package / itself (the A/A spread)", paired(again, ours), 1e3, "ms");
  const Paired against = paired(ours, compiled);
  print("package / torch.compile", against, 1e3, "ms");
  print("package / torch.compile with a full cache", paired(ours, cached), 1e3, "ms");
  tell("package / torch.compile", against.ratio.median, 0.1, "");
}

// The least that a C++ program does with train.so: run it, apply fused AdamW, read the loss.
class BareLoop {
 public:
  BareLoop(const fs::path& package, const Batch& batch)
      : manifest_(parse_package_manifest(read_file(package / "manifest.json"), "manifest.json")),
        runner_(torch::inductor::getAOTIModelRunnerRegistry().at("cpu")(
            (package / "train.so").string(), /*num_models=*/1, "cpu", /*bin_dir=*/"",
            /*run_single_threaded=*/false)) {
    const TensorMap weights = read_safetensors(package / "weights.safetensors").tensors;
    for (const auto& own : manifest_.parameters) {
      parameters_.push_back(weights.at(own.name).clone());
      first_.push_back(at::zeros_like(parameters_.back()));
      second_.push_back(at::zeros_like(parameters_.back()));
      steps_.push_back(at::zeros({}));
    }
    seed_ = at::full({}, 1.0 / static_cast<double>(batch.size()));
    for (const auto& field : manifest_.fields) fields_.push_back(batch[field.name]);
  }

  float step() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> inputs = parameters_;
    inputs.push_back(seed_);
    inputs.insert(inputs.end(), fields_.begin(), fields_.end());
    const std::vector<at::Tensor> outputs = runner_->boxed_run(std::move(inputs));
    std::vector<at::Tensor> gradients;
    for (const auto& own : manifest_.parameters) {
      gradients.push_back(outputs[static_cast<size_t>(own.gradient.value())]);
    }
    at::_foreach_add_(steps_, 1);
    at::_fused_adamw_(parameters_, gradients, first_, second_, {}, steps_, 1e-5, 0.9, 0.999, 0.01,
                      1e-8, false, false);
    return outputs[0].item<float>();
  }

 private:
  PackageManifest manifest_;
  std::unique_ptr<torch::inductor::AOTIModelContainerRunner> runner_;
  std::vector<at::Tensor> parameters_, first_, second_, steps_, fields_;
  at::Tensor seed_;
};

void measure_mlp(Asked asked) {
  asked.threads = "1";
  constexpr int kSteps = 200;
  std::printf("MLP 64-128-128-10, batch 32, fp32, 1 thread, %d rounds of %d steps\n", asked.rounds,
              kSteps);
  const Exported exported(asked, "mlp", "fp32");
  const OneBatch data = exported.data(10);
  const GlobalBatch batch = batches_of(data, data.size())[0];
  TanrenStep step(exported.config(data.size()), data);
  BareLoop bare_loop(exported.package(), batch.local);
  const auto block = [](const std::function<void()>& once) {
    return Side{[once] {
                  return seconds([&] {
                           for (int i = 0; i < kSteps; ++i) once();
                         }) /
                         kSteps;
                },
                {}};
  };
  Side ours = block([&] { step.step(batch); }), bare = block([&] { bare_loop.step(); });
  Side again = bare;
  go_in_turn(asked.rounds, {&ours, &bare, &again});
  print("bare loop / itself (the A/A spread)", paired(again, bare), 1e6, "us");
  const Paired against = paired(ours, bare);
  print("package / bare loop on the runner", against, 1e6, "us");
  std::printf("difference min %.1f median %.1f max %.1f us\n", against.difference.min * 1e6,
              against.difference.median * 1e6, against.difference.max * 1e6);
  tell("over the bare loop", against.difference.median * 1e6, 30, " us");
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
  const bench::Asked asked{.python = python,
                           .part = word(1, "all"),
                           .mode = word(2, "both"),
                           .threads = word(4, "2"),
                           .rounds = std::max(std::atoi(word(3, "8").c_str()), 1)};
  const auto has = [&](const std::string& part) {
    return asked.part == part || asked.part == "all";
  };
  if (!has("bert") && !has("script") && !has("start") && !has("mlp")) {
    std::printf("no part %s; there are bert, script, start, mlp, all\n", asked.part.c_str());
    return 2;
  }
  install_cpu_allocator();  // as a run does
  for (const char* mode : {"bf16", "fp32"}) {
    if (has("bert") && (asked.mode == mode || asked.mode == "both")) {
      bench::measure_bert(asked, mode);
    }
  }
  if (has("script")) bench::measure_script(asked);
  if (has("start")) bench::measure_start(asked);
  if (has("mlp")) bench::measure_mlp(asked);
  return 0;
}
