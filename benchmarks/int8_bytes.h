// Bytes of 8-bit models: of a file's tensors, and of a process that has loaded the file.
#pragma once

#include "tanren/formats/safetensors.h"
#include "tanren/interop/export.h"
#include "tanren/interop/model_description.h"
#include "tanren/interop/whole_model.h"
#include "tanren/memory/cpu_allocator.h"
#include "benchmarks/evaluated.h"
#include "benchmarks/int8_goal.h"
#include "benchmarks/peers/peer_process.h"
#include "benchmarks/resident.h"

#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>

#include <unistd.h>

namespace tanren::bench {

// The model of examples/digits.
inline StepCase digits_case() {
  at::manual_seed(1);
  constexpr int64_t kBatch = 16, kClasses = 10;
  TensorMap fields;
  fields.set("inputs", at::rand({kBatch, 1, 8, 8}));
  fields.set("labels", at::randint(kClasses, {kBatch}, at::kLong));
  StepCase made{"the convnet of examples/digits",
                step_config("convnet", "", kBatch),
                {{.input_shape = {1, 8, 8}, .outputs = kClasses, .class_labels = true},
                 fields,
                 {{"samples", kBatch}}}};
  made.config.model.channels = {32, 64};
  made.config.run.seed = 1;
  return made;
}

// The description that a finished run would write, with synthetic data.
inline Metadata description_of_case(const StepCase& of) {
  const DataInfo info = of.data.info();
  std::string sizes;
  for (const int64_t size : info.input_shape) {
    sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  }
  const std::string inputs = info.vocab_size > 0
                                 ? fmt::format("int[{}] in [0, {}]", sizes, info.vocab_size - 1)
                                 : fmt::format("float[{}] in [0, 1]", sizes);
  RunConfig config = of.config;
  config.data.train.kind = "synthetic";
  config.data.train.samples = of.data.size();
  config.data.train.fields = {"inputs: " + inputs,
                              fmt::format("labels: int[] in [0, {}]", info.outputs - 1)};
  Metadata metadata = describe_model(config, info, of.data.size());
  metadata["format"] = "pt";
  metadata["step"] = "0";
  metadata["weights"] = "raw";
  return metadata;
}

inline double tensor_bytes(const std::filesystem::path& file) {
  double bytes = 0;
  for (const auto& [name, tensor] : read_safetensors(file).tensors) {
    bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

// The same model in two files.
struct TwoFiles {
  std::filesystem::path fp32, int8;

  TwoFiles(const StepCase& of, QuantizeScheme scheme, const std::filesystem::path& folder)
      : fp32(folder / "fp32.safetensors"), int8(folder / "int8.safetensors") {
    const Task task = task_of(of);
    const Metadata metadata = description_of_case(of);
    write_whole_model(fp32, tensors_of(*task.module), metadata);
    const at::NoGradGuard no_grad;
    const QuantizedParameters parameters = quantized_of(task, whole_batch(of.data), scheme);
    QuantizeNote note;
    note.scheme = "dynamic";
    if (scheme == QuantizeScheme::calibrated) {
      note.scheme = "static";
      note.range = "mse";
      note.samples = of.data.size();
    }
    write_whole_model(int8, tensors_of(*task.module), metadata, parameters, note);
  }
};

inline void compare_files(const Int8Asked& asked, const char* about, const TwoFiles& files) {
  const double int8 = tensor_bytes(files.int8), fp32 = tensor_bytes(files.fp32);
  std::printf("%s: tensors of the file: int8 %.0f bytes, fp32 %.0f, ratio %.4f\n", about, int8,
              fp32, int8 / fp32);
  // This goal is the same for all processors.
  if (!asked.is_small) {
    std::printf("  goal 0.27: %s\n", int8 <= 0.27 * fp32 ? "kept" : "NOT KEPT");
  }
  asked.checks->holds("8-bit tensors are smaller", int8 < fp32);
}

// Loads the file for each line read from stdin. Prints three figures of this process: growth of the
// resident set, the resident set, and live bytes of tensors.
inline int load_for_each_line(const std::string& file) {
  install_cpu_allocator();
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const double before = status_bytes("VmRSS");
    const WholeModel model = load_model(file);
    const double after = status_bytes("VmRSS");
    std::cout << fmt::format("{:.0f} {:.0f} {}", after - before, after,
                             cpu_memory_stats().live_bytes)
              << std::endl;
  }
  return 0;
}

struct LoadedBytes {
  double growth = 0, resident = 0, live = 0;
};

inline LoadedBytes loaded_bytes(const std::filesystem::path& file) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  PeerProcess child({self, "load", file.string()});
  std::istringstream words(child.answer());
  LoadedBytes bytes;
  words >> bytes.growth >> bytes.resident >> bytes.live;
  return bytes;
}

inline void bytes_part(const Int8Asked& asked) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("tanren-int8-bytes-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  {
    const StepCase digits = digits_case();
    compare_files(asked, digits.about, TwoFiles(digits, QuantizeScheme::calibrated, folder));
  }
  const StepCase bert = evaluated_case("bert", asked.is_small, asked.threads);
  const TwoFiles files(bert, QuantizeScheme::dynamic, folder);
  compare_files(asked, asked.is_small ? bert.about : "BERT-base", files);
  const LoadedBytes int8 = loaded_bytes(files.int8), fp32 = loaded_bytes(files.fp32);
  constexpr double kMega = 1 << 20;
  std::printf(
      "a process that has loaded it (VmRSS; program and libtorch are the part before):\n"
      "  growth: int8 %.1f MiB, fp32 %.1f, ratio %.3f\n"
      "  all: int8 %.1f MiB, fp32 %.1f, ratio %.3f\n"
      "  the allocator's meter: int8 %.1f MiB, fp32 %.1f, ratio %.3f\n",
      int8.growth / kMega, fp32.growth / kMega, int8.growth / fp32.growth, int8.resident / kMega,
      fp32.resident / kMega, int8.resident / fp32.resident, int8.live / kMega, fp32.live / kMega,
      int8.live / fp32.live);
  if (!asked.is_small) {
    std::printf("  goal of the growth 0.40: %s\n",
                int8.growth <= 0.4 * fp32.growth ? "kept" : "NOT KEPT");
  }
  asked.checks->holds("the process with 8-bit weights holds less", int8.live < fp32.live);
  std::filesystem::remove_all(folder);
}

}  // namespace tanren::bench
