#include "tanren/base/error.h"
#include "tanren/base/json_text.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/checkpoint/weights_file.h"
#include "tanren/data/text/tokenize_file.h"
#include "tanren/interop/python_folder.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/interop/torch_state.h"
#include "tanren/plan/probe_machine.h"
#include "cli/verbs.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>

#include <filesystem>
#include <iostream>
#include <optional>

namespace tanren::cli {

namespace {

std::string shape_text(const at::Tensor& tensor) {
  std::string text = "[";
  for (const auto size : tensor.sizes()) text += (text.size() > 1 ? ", " : "") + to_text(size);
  return text + "]";
}

std::string dtype_text(const at::Tensor& tensor) {
  std::string name = c10::getDtypeNames(tensor.scalar_type()).first;
  return name;
}

// A file's quantize note, reduced to the weights that the file holds as int8, because --list
// accepts any file.
struct ListedNote {
  QuantizeNote note;
  std::string fault;  // a note that cannot be read is passed over, and its fault is a line
};

ListedNote listed_note(const WeightsFile& file, const std::string& path) {
  ListedNote listed;
  try {
    listed.note = quantize_note(file.metadata, path);
  } catch (const ConfigError& error) {
    listed.fault = error.what();
  }
  std::erase_if(listed.note.readers, [&](const auto& of) {
    const at::Tensor* const tensor = file.content.tensors.find(of.first);
    return tensor == nullptr || tensor->scalar_type() != at::kChar;
  });
  return listed;
}

void list(const WeightsFile& file, const std::string& path, bool json) {
  const auto [note, fault] = listed_note(file, path);
  if (json) {
    auto tensors = nlohmann::ordered_json::object();
    for (const auto& [name, tensor] : file.content.tensors) {
      tensors[name] = {{"shape", tensor.sizes().vec()}, {"dtype", dtype_text(tensor)}};
    }
    nlohmann::ordered_json all{{"kind", file.kind}, {"tensors", tensors}};
    if (!note.empty()) all["quantize"] = parse_ordered_json(quantize_text(note));
    if (!fault.empty()) all["quantize_fault"] = one_line(fault);
    std::cout << json_text(all, 2) << "\n";
    return;
  }
  double bytes = 0;
  int64_t elements = 0;
  for (const auto& [name, tensor] : file.content.tensors) {
    bytes += static_cast<double>(tensor.nbytes());
    elements += tensor.numel();
  }
  // Names come from the file, and may contain terminal control sequences.
  std::cout << one_line(file.kind) << ": " << file.content.tensors.size() << " tensors, "
            << elements << " elements, " << bytes_text(bytes) << "\n";
  if (!note.empty()) std::cout << quantize_line(note) << "\n";
  if (!fault.empty()) std::cout << one_line(fault) << "\n";
  for (const auto& [tensor_name, tensor] : file.content.tensors) {
    std::cout << one_line(tensor_name) << "  " << shape_text(tensor) << "  " << dtype_text(tensor);
    const auto reader = note.readers.find(tensor_name);
    if (reader != note.readers.end()) std::cout << "  " << name(reader->second);
    std::cout << "\n";
  }
  for (const auto& [parameter, why] : note.kept) {
    std::cout << one_line(parameter) << " stays: " << one_line(why) << "\n";
  }
  for (const auto& record : file.opaque) std::cout << one_line(record) << "  (not read)\n";
}

std::vector<std::pair<std::string, std::string>> pairs_of(const std::vector<std::string>& renames) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const auto& text : renames) {
    const auto equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw ConfigError("[convert] --rename " + text +
                        " is no old=new; write --rename backbone=body");
    }
    pairs.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return pairs;
}

at::ScalarType dtype_of(const std::string& name) {
  if (name == "fp32") return at::kFloat;
  if (name == "fp16") return at::kHalf;
  if (name == "bf16") return at::kBFloat16;
  if (name == "fp64") return at::kDouble;
  throw ConfigError("[convert] --dtype " + name + " is unknown; one of fp32, fp16, bf16, fp64");
}

// Casts floating tensors to `dtype`; returns how many finite elements it cannot hold.
int64_t cast(TensorMap& tensors, at::ScalarType dtype) {
  int64_t lost = 0;
  TensorMap result;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.is_floating_point()) {
      result.set(name, tensor);
      continue;
    }
    const at::Tensor narrow = tensor.to(dtype);
    lost += (narrow.isinf() & tensor.isfinite()).sum().item<int64_t>();
    result.set(name, narrow);
  }
  tensors = std::move(result);
  return lost;
}

int tokenize(const Arguments& arguments) {
  if (arguments.target.empty() || arguments.list || !arguments.dtype.empty() ||
      !arguments.renames.empty()) {
    throw ConfigError(
        "[convert] --tokenizer takes a text and the file to write, and no other option");
  }
  const auto tokenizer = load_tokenizer(arguments.tokenizer);
  const auto done =
      tokenize_file(arguments.file, arguments.target, *tokenizer, probe_machine().cores);
  if (arguments.quiet) return 0;
  std::cout << arguments.target << ": " << done.tokens << " tokens of " << done.bytes
            << " bytes of text, uint" << 8 * done.width << ", vocabulary "
            << tokenizer->vocab_size() << "\n";
  return 0;
}

// Whether the target has no extension, or is an existing folder.
bool is_folder(const std::string& target) {
  const std::filesystem::path path = target;
  return !target.empty() && (path.extension().empty() || std::filesystem::is_directory(path));
}

int write_folder(const Arguments& arguments, const Registry& registry) {
  if (!arguments.renames.empty()) {
    throw ConfigError(
        "[convert] --rename does not go with a folder to write; Python's names are kept");
  }
  std::optional<at::ScalarType> dtype;
  if (!arguments.dtype.empty()) dtype = dtype_of(arguments.dtype);
  const auto written = write_python_folder(arguments.file, arguments.target, dtype, registry);
  if (arguments.quiet) return 0;
  for (const auto& remark : written.remarks) std::cout << remark << "\n";
  std::cout << arguments.target << ": " << join(written.files) << "\n" << written.opened_by << "\n";
  return 0;
}

// Writes a run's checkpoint as a torch training checkpoint.
int convert_checkpoint(const Arguments& arguments, const Registry& registry) {
  const std::filesystem::path target = arguments.target, folder = arguments.file;
  const auto extension = target.extension();
  if (extension != ".pt" && extension != ".pth" && extension != ".bin") {
    throw ConfigError("[convert] --optimizer writes what torch.load reads; name a .pt to write");
  }
  if (arguments.list || !arguments.dtype.empty() || !arguments.renames.empty()) {
    throw ConfigError("[convert] --optimizer goes with no other option; drop it");
  }
  const auto latest = latest_checkpoint(folder / "checkpoints");
  const auto checkpoint = latest.value_or(folder);
  if (!std::filesystem::is_directory(checkpoint)) {
    throw CheckpointError("[convert] " + arguments.file +
                          " is no run or checkpoint folder, and no other file has an optimizer to "
                          "convert; drop --optimizer");
  }
  write_torch_checkpoint(checkpoint, target, registry.known());
  if (!arguments.quiet) {
    std::cout << arguments.target << ": model and optimizer of " << checkpoint.string() << "\n";
  }
  return 0;
}

}  // namespace

int convert(const Arguments& arguments, const Registry& registry) {
  if (arguments.optimizer) return convert_checkpoint(arguments, registry);
  if (!arguments.tokenizer.empty()) return tokenize(arguments);
  const at::NoGradGuard no_grad;
  if (is_folder(arguments.target) && !arguments.list) return write_folder(arguments, registry);
  const auto pairs = pairs_of(arguments.renames);
  if (arguments.list) {
    list(read_state_dict(arguments.file).file, arguments.file, arguments.json);
    return 0;
  }
  auto [file, state] = read_expanded(arguments.file);
  if (arguments.target.empty()) {
    throw ConfigError("[convert] the file to write is missing; tanren convert IN OUT, or --list");
  }
  state.tensors = renamed(state.tensors, pairs);
  if (state.tensors.empty()) {
    throw CheckpointError("[convert] " + arguments.file +
                          " holds no tensor; see what it holds with "
                          "--list");
  }
  if (!arguments.dtype.empty()) {
    const int64_t lost = cast(state.tensors, dtype_of(arguments.dtype));
    if (lost > 0) {
      throw CheckpointError(
          fmt::format("[convert] {} elements are too large for {}; convert to bf16 or fp32", lost,
                      arguments.dtype));
    }
  }
  write_weights(arguments.target, state.tensors);
  if (arguments.quiet) return 0;
  for (const auto& remark : state.remarks) std::cout << remark << "\n";
  std::cout << arguments.target << ": " << state.tensors.size() << " tensors from "
            << one_line(file.kind) << "\n";
  return 0;
}

}  // namespace tanren::cli
