#include "tanren/interop/export.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/one_line.h"
#include "tanren/base/temporary.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/checkpoint.h"
#include "tanren/checkpoint/step_folders.h"
#include "tanren/config/read_config.h"
#include "tanren/interop/model_description.h"
#include "tanren/interop/quantized_tensors.h"

#include <unistd.h>

#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

namespace tanren {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFile = "model.safetensors";

struct Weights {
  TensorMap tensors;
  int64_t step = 0;
  bool averaged = false;
};

std::set<std::string> lines_of(std::string_view text) {
  std::set<std::string> lines;
  while (!text.empty()) lines.emplace(take_line(text));
  return lines;
}

bool has_updates(const State& average) {
  for (const auto& [name, value] : average.values) {
    const auto* count = std::get_if<int64_t>(&value);
    if (count != nullptr && *count > 0) return true;
  }
  return false;
}

Weights weights_of(const RunState& run, bool wants_average) {
  bool averaged = false;
  for (const auto* average : run.averages()) averaged |= average->num_updates() > 0;
  averaged = averaged && wants_average;
  return {averaged ? run.averaged_tensors() : run.model_tensors(), run.step(), averaged};
}

// The weights and buffers that the objective averages; `path`: phase.objective.
std::set<std::string> averaged_names(const RunState& run, const std::string& path) {
  std::map<const c10::TensorImpl*, std::string> buffers;
  for (const auto& item : run.task.module->named_buffers()) {
    buffers.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  std::set<std::string> owned;  // a buffer is averaged by the first objective that has it
  for (const Phase& phase : run.phases) {
    for (const Objective& objective : phase.objectives) {
      std::set<std::string> names;
      for (const NamedParameter& parameter : objective.all) names.insert(parameter.name);
      for (const ObjectiveBuffer& buffer : objective.buffers) {
        const auto name = buffers.find(buffer.tensor.unsafeGetTensorImpl());
        if (name != buffers.end() && owned.insert(name->second).second) names.insert(name->second);
      }
      if (phase.spec.name + "." + objective.spec.name == path) return names;
    }
  }
  return {};
}

// `run`: as averages_in.
Weights weights_of(const Snapshot& snapshot, const fs::path& checkpoint, int64_t step,
                   bool wants_average, const RunState* run) {
  Weights weights{snapshot.model.tensors, step, false};
  if (!wants_average) return weights;
  weights.averaged = has_updates(snapshot.average);
  for (const auto& [name, tensor] : averages_in(snapshot.average, run, checkpoint.string())) {
    weights.tensors.set(name, tensor);
  }
  return weights;
}

// No rank of a run in stages has the whole model: the run's last checkpoint has it.
Weights weights_of_stages(const fs::path& checkpoints, bool wants_average, const RunState& run) {
  const auto last = latest_checkpoint(checkpoints);
  if (!last) {
    throw CheckpointError("[export] " + checkpoints.string() +
                          " has no complete checkpoint, from which a run in stages exports its "
                          "weights; go on with it from there or train again");
  }
  return weights_of(read_checkpoint(*last), *last, step_of(*last), wants_average, &run);
}

Weights chosen(const RunState& run, const Parts& parts, const fs::path& folder) {
  const bool wants_average = parts.plan.average.evaluate;
  for (const auto& ranked : run.selection.best) {
    if (ranked.step == run.step()) break;
    if (const auto checkpoint = checkpoint_of_step(folder / "checkpoints", ranked.step)) {
      return weights_of(read_checkpoint(*checkpoint), *checkpoint, ranked.step, wants_average,
                        &run);
    }
  }
  if (run.stage != nullptr) return weights_of_stages(folder / "checkpoints", wants_average, run);
  return weights_of(run, wants_average);
}

Metadata told_of(const Weights& weights, const RunState& run, Metadata description) {
  description["format"] = "pt";
  description["step"] = to_text(weights.step);
  description["run_step"] = to_text(run.step());
  description["weights"] = weights.averaged ? "averaged" : "raw";
  return description;
}

// Creates a second name for the same bytes. False if the file system has no such names; then the
// caller writes a copy.
bool link(const fs::path& file, const fs::path& name) {
  const fs::path aside =
      make_temporary(name, [&](const char* temporary) { return ::link(file.c_str(), temporary); });
  if (aside.empty()) return false;
  std::error_code error;
  fs::rename(aside, name, error);
  if (error) {
    fs::remove(aside, error);
    return false;
  }
  sync_folder(name.parent_path());
  return true;
}

// The scheme must fit, because readers learn from it whether the inputs of products stay floating.
void check_scheme(const QuantizedParameters& parameters, const std::string& scheme) {
  for (const auto& [name, parameter] : parameters) {
    const bool reads_product =
        parameter.reader == WeightReader::linear || parameter.reader == WeightReader::projection;
    if (!reads_product || parameter.is_weight_alone == (scheme == "weights")) continue;
    throw InputError("[quantize] the input of " + name +
                     (parameter.is_weight_alone ? " stays floating" : " becomes 8-bit") +
                     ", and the scheme is " + scheme +
                     "; give the scheme for which it was quantised");
  }
}

// Refuses 8-bit tensors in a model that is to be written as a floating one.
void check_floating(const TensorMap& tensors, const QuantizeNote& note) {
  for (const auto& [name, tensor] : tensors) {
    if (note.readers.count(name) == 0 || tensor.is_floating_point()) continue;
    throw InputError("[export] " + one_line(name) +
                     " is an 8-bit weight and not among the parameters to write; give those of "
                     "quantized_parameters, or the tensors of expanded");
  }
}

}  // namespace

Exported export_weights(const RunState& run, const Parts& parts, const fs::path& folder,
                        const Metadata& description, const FakeQuantization* how) {
  const Weights weights = chosen(run, parts, folder);
  const TensorMap tensors =
      how != nullptr ? without_names(weights.tensors, input_scale_names(*how)) : weights.tensors;
  const Metadata metadata = told_of(weights, run, description);
  write_whole_model(folder / kWholeFile, tensors, metadata);
  if (!link(folder / kWholeFile, folder / kFile)) {
    write_whole_model(folder / kFile, tensors, metadata);
  }
  return {folder / kFile, weights.step, weights.averaged};
}

fs::path export_quantized(const RunState& run, const Parts& parts, const fs::path& folder,
                          const Metadata& description, const FakeQuantization& how) {
  const Weights weights = chosen(run, parts, folder);
  TensorMap tensors;
  for (const auto& [name, tensor] : without_names(weights.tensors, input_scale_names(how))) {
    const bool is_wide = tensor.scalar_type() == at::kDouble;
    tensors.set(name, is_wide ? tensor.to(at::kFloat) : tensor);
  }
  const QuantizePlan& plan = parts.plan.quantize;
  QuantizeNote note{.scheme = name(how.scheme), .kept = how.kept};
  if (how.scheme == QuantizeScheme::calibrated) {
    note.range = name(plan.range);
    note.samples = plan.samples;
  }
  const QuantizedParameters parameters = learned_parameters(weights.tensors, how);
  const fs::path out = folder / kQuantizedFolder;
  fs::create_directories(out);
  // Removes reports of tanren quantize on an earlier model.
  for (const char* old : {"quantize.txt", "quantize.json", "quantize.html"}) fs::remove(out / old);
  fs::path file = out / kWholeFile;
  write_whole_model(file, tensors, told_of(weights, run, description), parameters, std::move(note));
  return file;
}

void write_whole_model(const fs::path& file, const TensorMap& tensors, const Metadata& metadata,
                       const QuantizedParameters& parameters, QuantizeNote note) {
  if (parameters.empty()) {
    check_floating(tensors, quantize_note(metadata, "the model to write"));
    write_safetensors(file, tensors, describe_floating(metadata), Narrow::widened);
    return;
  }
  note.readers.clear();
  for (const auto& [name, parameter] : parameters) note.readers[name] = parameter.reader;
  const Metadata described = describe_quantized(metadata, note);
  check_scheme(parameters, note.scheme);
  write_safetensors(file, with_quantized(tensors, parameters), described, Narrow::widened);
}

TensorMap plain_tensors(const TensorMap& tensors, const std::map<std::string, Value>& run,
                        const std::string& config_toml) {
  const auto named = run.find(kInputScales);
  if (named != run.end()) {
    return without_names(tensors, lines_of(value_of<std::string>({{}, run}, named->first)));
  }
  const QuantizeOptions trained = parse_recorded_config(config_toml, "config.toml").quantize;
  if (trained.scheme != name(QuantizeScheme::calibrated)) return tensors;
  return without_names(tensors, input_scale_names(tensors, trained.keep));
}

SafetensorsFile checkpoint_weights(const fs::path& checkpoint, bool wants_average) {
  const Snapshot snapshot = read_checkpoint(checkpoint);
  const Weights weights = weights_of(snapshot, checkpoint, 0, wants_average, /*run=*/nullptr);
  return {plain_tensors(weights.tensors, snapshot.run.values, snapshot.config_toml),
          {{"weights", weights.averaged ? "averaged" : "raw"}}};
}

TensorMap averages_in(const State& average, const RunState* run, const std::string& from) {
  constexpr std::string_view kUpdates = ".num_updates";
  TensorMap averages;
  if (!has_updates(average)) return averages;
  std::set<std::string> raw;
  for (const auto& [name, value] : average.values) {
    const auto* count = std::get_if<int64_t>(&value);
    if (count == nullptr || *count != 0 || !name.ends_with(kUpdates)) continue;
    const std::string path = name.substr(0, name.size() - kUpdates.size());
    const auto listed = average.values.find(path + "." + kNoAverage);
    if (listed != average.values.end()) {
      raw.merge(lines_of(value_of<std::string>(average, listed->first)));
    } else if (run != nullptr) {
      raw.merge(averaged_names(*run, path));
    } else {
      throw CheckpointError("[export] " + from +
                            " is of an older version, and does not say which "
                            "of its averages are those of " +
                            path +
                            ", which has none yet; take the raw weights with --set "
                            "average.evaluate=false");
    }
  }
  for (const auto& [name, tensor] : average.tensors) {
    if (raw.count(name) == 0) averages.set(name, tensor);
  }
  // Older step folders have the averages under the first names alone.
  return run != nullptr ? run->under_all_names(averages) : averages;
}

std::optional<fs::path> exported_weights(const fs::path& folder) {
  const fs::path file = folder / kFile;
  return fs::is_regular_file(file) ? std::optional(file) : std::nullopt;
}

WeightsOrigin weights_origin(const Metadata& metadata) {
  WeightsOrigin origin;
  if (const auto found = metadata.find("step"); found != metadata.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), origin.step);
  }
  const auto kind = metadata.find("weights");
  origin.averaged = kind != metadata.end() && kind->second == "averaged";
  return origin;
}

bool load_exported(RunState& run, const fs::path& file) {
  const SafetensorsFile read = read_safetensors(file);
  run.load_model(read.tensors, file.string());
  const WeightsOrigin origin = weights_origin(read.metadata);
  run.phases.front().objectives.front().step = origin.step;
  return origin.averaged;
}

}  // namespace tanren
