#include "tanren/run/prepare_whole.h"

#include "tanren/base/error.h"
#include "tanren/config/kinds.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/export.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/train/freezing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <system_error>
#include <utility>

namespace tanren {

namespace {

// Bytes that 8-bit weights save over fp32 ones. An element takes one byte, and each scale comes
// with a sum. A weight that is expanded for each call is then there twice in fp32.
int64_t saved_bytes(const torch::nn::Module& module, const SafetensorsFile& read,
                    const QuantizeNote& note) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  int64_t saved = 0, largest = 0;
  std::set<const at::TensorImpl*> seen;  // a parameter may have two names
  for (const auto& item : module.named_parameters()) {
    if (note.readers.count(item.key()) == 0) continue;
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    const QuantizedNames names = quantized_names(item.key());
    const WeightReader reader = note.readers.find(item.key())->second;
    const bool is_expanded = reader == WeightReader::convolution
                                 ? !read.tensors.contains(names.input_scale)
                                 : reader != WeightReader::embedding && note.scheme == "weights";
    const int64_t elements = item.value().numel();
    if (is_expanded) largest = std::max(largest, 2 * kFloat * elements);
    saved += (kFloat - 1) * elements - 2 * kFloat * read.tensors.at(names.scale).numel();
  }
  return saved - largest;
}

}  // namespace

Prepared prepare_whole(const ModelDescription& description, const SafetensorsFile& read,
                       const QuantizeNote& note, const std::string& what, const Registry& registry,
                       std::unique_ptr<Dataset> eval) {
  const auto& [config, info, train_samples] = description;
  const auto task = [&](const ModelOptions& model) {
    // As build_task: a model may draw in its forward.
    at::manual_seed(static_cast<uint64_t>(description.config.run.seed));
    const bool is_wide = description.config.precision.mode == "fp64";
    Task built = build_described(model, description.info, read, note, what, registry.models,
                                 is_wide ? at::kDouble : at::kFloat);
    freeze(*built.module, model);
    return built;
  };
  Prepared prepared =
      prepare(config, registry, /*has_weights=*/true, "",
              {.datasets = {described_dataset(info, train_samples), std::move(eval)}, .task = task},
              /*trains=*/false);
  prepared.fit.standing_bytes -= saved_bytes(*prepared.task.module, read, note);
  return prepared;
}

std::unique_ptr<Dataset> open_described(ModelDescription& description,
                                        const std::filesystem::path& data,
                                        const std::filesystem::path& file, const Registry& registry,
                                        const std::string& verb) {
  RunConfig& config = description.config;
  SourceOptions& source = config.data.eval;
  source.encoding = config.data.encoding;
  if (!data.empty()) {
    check_is_there(source, data, verb);
    source.path = std::filesystem::absolute(data).string();
  }
  read_as_text(source, description.info.tokenizer != nullptr, "data.eval");
  const auto own = registry.datasets.kinds();
  const bool is_own = std::find(own.begin(), own.end(), source.kind) != own.end();
  if (source.path.empty() && source.kind != "synthetic" && !is_own) {
    throw ConfigError("[" + verb + "] the data are missing; name a file or folder of kind " +
                      source.kind + " behind " + file.string());
  }
  return registry.datasets.open(source, "data.eval", &description.info);
}

void check_is_there(const SourceOptions& source, const std::filesystem::path& data,
                    const std::string& verb) {
  std::error_code unknown;
  if (dataset_kind(source.kind) != nullptr || std::filesystem::exists(data, unknown)) return;
  throw ConfigError("[" + verb + "] " + data.string() +
                    " does not exist; name a file or folder that is there");
}

RunState whole_state(Task task, const Parts& parts, const Metadata& metadata) {
  RunState state = build_run_state(std::move(task), parts, /*trains=*/false);
  state.phases.front().objectives.front().step = weights_origin(metadata).step;
  return state;
}

}  // namespace tanren
