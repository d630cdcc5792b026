#include "tanren/model/package.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/graph_facts.h"
#include "tanren/base/hash.h"
#include "tanren/base/json_text.h"
#include "tanren/base/loss_seeds.h"
#include "tanren/base/metric_names.h"
#include "tanren/base/names.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/dry/dry_scope.h"
#include "tanren/formats/safetensors.h"
#include "tanren/model/compiled_graph.h"
#include "tanren/model/named_modules.h"
#include "tanren/model/package_fields.h"
#include "tanren/model/package_host.h"
#include "tanren/model/package_manifest.h"

#include <nlohmann/json.hpp>
#include <sys/utsname.h>
#include <ATen/ATen.h>
#include <torch/version.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace tanren {

namespace fs = std::filesystem;

namespace {

PackageHost this_host() {
  utsname names{};
  ::uname(&names);
  return {.torch = fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR,
                               TORCH_VERSION_PATCH),
          .machine = names.machine,
          .processor_flags = processor_flags()};
}

// "Float [3, 4]"
std::string typed_shape(const at::Tensor& tensor) {
  return c10::str(c10::toString(tensor.scalar_type()), " ", tensor.sizes());
}

// Takes the weights out of a package's file by name, and checks their dtypes and sizes.
class Weights {
 public:
  explicit Weights(const fs::path& file) : file_(file.string()) {
    values_ = read_safetensors(file).tensors;
  }
  at::Tensor take(const std::string& name, const std::string& dtype,
                  const std::vector<int64_t>& sizes) {
    const at::Tensor* found = values_.find(name);
    if (found == nullptr) refuse("lacks " + name);
    if (found->scalar_type() != package_type(dtype) || found->sizes() != at::IntArrayRef(sizes)) {
      refuse(fmt::format("has {} as {}, and the manifest says {} {}", name, typed_shape(*found),
                         dtype, c10::str(at::IntArrayRef(sizes))));
    }
    ++taken_;
    return found->clone();
  }
  void check_empty() const {
    const auto all = std::distance(values_.begin(), values_.end());
    if (all != taken_) {
      refuse(fmt::format("has {} tensors, and the manifest {}", all, taken_));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(one_line("[model] " + file_ + " " + what + "; export the package again"));
  }

  std::string file_;
  TensorMap values_;
  std::ptrdiff_t taken_ = 0;
};

class Package {
 public:
  explicit Package(fs::path folder) : folder_(std::move(folder)) {
    const fs::path file = folder_ / "manifest.json";
    std::error_code none;
    if (!fs::is_regular_file(file, none)) {
      throw ConfigError(one_line("[model] " + folder_.string() +
                                 " is no package: it has no manifest.json; write one with "
                                 "tanren_export.py and name its folder in model.path"));
    }
    const std::string text = read_file(file);
    manifest_ = parse_package_manifest(text, file.string());
    checksum_ = hash_text(content_hash(text));
    check_package_host(manifest_, this_host(), folder_.string());
    check_package_files(manifest_, folder_);
    read_hf_config();
    read_weights();
    const auto check = [text, file] { check_package_stays(text, file); };
    train_ = std::make_unique<CompiledGraph>(folder_ / "train.so", manifest_.device, check);
    predict_ = std::make_unique<CompiledGraph>(folder_ / "predict.so", manifest_.device, check);
    check();
  }

  const PackageManifest& manifest() const { return manifest_; }
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }

  // On an accelerator the first call loads both graphs. Thus a bad predict.so is reported before
  // any training, and the first memory measurement includes it.
  Terms train(const Batch& batch) {
    predict_->load(parameters_[0].device());
    std::vector<at::Tensor> inputs = weights();
    GraphResults results{.has_seeds = LossSeedsScope::current() != nullptr};
    for (const auto& term : manifest_.terms) {
      const at::Tensor seed = seed_of(term);
      results.seeds.push_back(seed);
      inputs.push_back(seed.defined() ? seed : at::zeros({}, float_options()));
    }
    add_package_fields(manifest_, folder_.string(), batch, /*trains=*/true, inputs);
    std::vector<at::Tensor> outputs = train_->run(std::move(inputs));
    check_outputs(outputs);
    for (size_t i = 0; i < manifest_.parameters.size(); ++i) {
      const auto& gradient = manifest_.parameters[i].gradient;
      if (!gradient) continue;
      results.parameters.push_back(parameters_[i]);
      results.gradients.push_back(std::move(outputs[static_cast<size_t>(*gradient)]));
    }
    results.terms = terms_of(outputs);
    write_buffers(outputs);
    return graph_terms(std::move(results));
  }

  Prediction predict(const Batch& batch) {
    std::vector<at::Tensor> inputs = weights();
    add_package_fields(manifest_, folder_.string(), batch, /*trains=*/false, inputs);
    const std::vector<at::Tensor> outputs = predict_->run(std::move(inputs));
    const bool has_scores = !manifest_.targets.empty();
    const size_t wanted = manifest_.terms.size() + (has_scores ? 1 : 0);
    if (outputs.size() != wanted) refuse_outputs("predict.so", outputs.size(), wanted);
    check_terms("predict.so", outputs);
    if (has_scores) check_scores(outputs.back(), batch[manifest_.targets].size(0));
    Prediction prediction{.terms = terms_of(outputs)};
    if (has_scores) {
      prediction.outputs = outputs.back();
      prediction.targets = batch[manifest_.targets];
    }
    return prediction;
  }

  TaskFacts facts() const {
    GraphFacts graph{.precision = manifest_.precision,
                     .device = manifest_.device,
                     .torch = manifest_.torch,
                     .instructions = instructions(),
                     .sizes = package_sizes(manifest_),
                     .draws = manifest_.draws,
                     .checksum = checksum_,
                     .class_name = manifest_.class_name};
    graph.hf_config = hf_config_;
    for (const auto& parameter : manifest_.parameters) {
      if (parameter.is_frozen) graph.frozen.push_back(parameter.name);
    }
    for (const auto& buffer : manifest_.buffers) {
      if (buffer.output) graph.changed.push_back(buffer.name);
    }
    const auto& batch = manifest_.ranges.at("batch");
    const int64_t missing = (batch.multiple - batch.min % batch.multiple) % batch.multiple;
    return {.couples_samples = manifest_.couples_samples,
            .torch_dropout = manifest_.draws,
            .runs_dry = false,
            .least_samples = batch.min + missing,
            .graph = std::move(graph)};
  }

 private:
  // A run writes it beside its weights, so it must be valid JSON.
  void read_hf_config() {
    const fs::path file = folder_ / "config.json";
    std::error_code none;
    if (!fs::is_regular_file(file, none)) return;
    hf_config_ = read_file(file);
    if (parse_json(hf_config_).is_object()) return;
    throw ConfigError(
        one_line("[model] " + file.string() +
                 " is no object of JSON, which has neither Infinity nor NaN; write a number that "
                 "the model takes for each, or leave the key out if that is the class's default"));
  }

  void read_weights() {
    module_ = named_modules(manifest_.class_name);
    Weights weights(folder_ / "weights.safetensors");
    std::map<std::string, at::Tensor> by_name;
    for (const auto& own : manifest_.parameters) {
      parameters_.push_back(weights.take(own.name, own.dtype, own.sizes));
      add_parameter(*module_, own.name, parameters_.back(), !own.is_frozen);
      by_name[own.name] = parameters_.back();
    }
    for (const auto& [name, first] : manifest_.tied) {
      const at::Tensor& parameter = by_name.at(first);
      add_parameter(*module_, name, parameter, parameter.requires_grad());
    }
    for (const auto& own : manifest_.buffers) {
      buffers_.push_back(weights.take(own.name, own.dtype, own.sizes));
      add_buffer(*module_, own.name, buffers_.back());
    }
    weights.check_empty();
  }

  at::TensorOptions float_options() const {
    return at::TensorOptions(package_type(manifest_.float_dtype())).device(parameters_[0].device());
  }

  // The seed of a term; 1 outside of a step. Undefined if no backward will begin at the term.
  at::Tensor seed_of(const PackageManifest::Summed& term) const {
    const at::TensorOptions options = float_options();
    LossSeeds* const seeds = LossSeedsScope::current();
    if (seeds == nullptr) return at::ones({}, options);
    return seeds->of(term.name, term.count, package_type(manifest_.float_dtype()),
                     options.device());
  }

  // Parameters and buffers, as the graphs want them.
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> all;
    const auto add = [&](const at::Tensor& tensor, const auto& own) {
      if (tensor.scalar_type() != package_type(own.dtype) || !tensor.is_contiguous() ||
          tensor.sizes() != at::IntArrayRef(own.sizes)) {
        throw ConfigError(fmt::format(
            "[model] {}: {} is {} with strides {}, and its graph reads a contiguous {} {}; do not "
            "convert the weights of a package",
            folder_.string(), own.name, typed_shape(tensor), c10::str(tensor.strides()), own.dtype,
            c10::str(at::IntArrayRef(own.sizes))));
      }
      all.push_back(tensor);
    };
    for (size_t i = 0; i < parameters_.size(); ++i) add(parameters_[i], manifest_.parameters[i]);
    for (size_t i = 0; i < buffers_.size(); ++i) add(buffers_[i], manifest_.buffers[i]);
    return all;
  }

  Terms terms_of(const std::vector<at::Tensor>& outputs) const {
    Terms terms;
    for (size_t i = 0; i < manifest_.terms.size(); ++i) {
      terms.push_back({manifest_.terms[i].name, outputs[i], manifest_.terms[i].count});
    }
    return terms;
  }

  // Called after the graph has run, so that a failure of the graph leaves the buffers unchanged.
  void write_buffers(const std::vector<at::Tensor>& outputs) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < manifest_.buffers.size(); ++i) {
      const auto& output = manifest_.buffers[i].output;
      if (output) buffers_[i].copy_(outputs[static_cast<size_t>(*output)]);
    }
  }

  void check_outputs(const std::vector<at::Tensor>& outputs) const {
    const auto wanted = static_cast<size_t>(manifest_.outputs);
    if (outputs.size() != wanted) refuse_outputs("train.so", outputs.size(), wanted);
    check_terms("train.so", outputs);
    const auto check = [&](int64_t index, const auto& own) {
      const at::Tensor& output = outputs[static_cast<size_t>(index)];
      check_output("train.so", index, output, own.name, own.dtype, own.sizes);
    };
    for (const auto& own : manifest_.parameters) {
      if (own.gradient) check(*own.gradient, own);
    }
    for (const auto& own : manifest_.buffers) {
      if (own.output) check(*own.output, own);
    }
  }

  void check_terms(const char* file, const std::vector<at::Tensor>& outputs) const {
    for (size_t i = 0; i < manifest_.terms.size(); ++i) {
      check_output(file, static_cast<int64_t>(i), outputs[i], manifest_.terms[i].name,
                   manifest_.float_dtype(), {});
    }
  }

  // Checks the first size only, because the manifest does not give the others.
  void check_scores(const at::Tensor& scores, int64_t samples) const {
    std::vector<int64_t> sizes = scores.sizes().vec();
    if (sizes.empty()) sizes.push_back(samples);
    sizes.front() = samples;
    check_output("predict.so", std::ssize(manifest_.terms), scores, "scores",
                 manifest_.float_dtype(), sizes);
  }

  void check_output(const char* file, int64_t index, const at::Tensor& output,
                    const std::string& name, std::string_view dtype, at::IntArrayRef sizes) const {
    const at::Device device = parameters_[0].device();
    if (output.sizes() == sizes && output.scalar_type() == package_type(dtype) &&
        output.device() == device) {
      return;
    }
    throw ConfigError(fmt::format(
        "[model] {}: output {} of {} is {} on {}, and {} wants {} {} on {}; export the package "
        "again",
        folder_.string(), index, file, typed_shape(output), output.device().str(), name, dtype,
        c10::str(sizes), device.str()));
  }

  std::string instructions() const {
    const auto has = [&](std::string_view flag) {
      const auto& flags = manifest_.processor_flags;
      return std::find(flags.begin(), flags.end(), flag) != flags.end();
    };
    if (manifest_.device != "cpu") return manifest_.device;
    if (has("amx_tile")) return "amx";
    return has("avx512f") ? "avx512" : has("avx2") ? "avx2" : manifest_.machine;
  }

  [[noreturn]] void refuse_outputs(const char* file, size_t found, size_t wanted) const {
    throw ConfigError(fmt::format(
        "[model] {}: {} gives {} outputs, and the manifest says {}; export the package again",
        folder_.string(), file, found, wanted));
  }

  fs::path folder_;
  PackageManifest manifest_;
  std::string checksum_, hf_config_;
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<at::Tensor> parameters_, buffers_;  // the module's own, in the manifest's order
  std::unique_ptr<CompiledGraph> train_, predict_;
};

// "classes" and "values" stand for the names that fit such outputs.
std::vector<std::string> metrics_of(const PackageManifest& manifest, const fs::path& folder) {
  std::vector<std::string> names;
  const auto add = [&](const std::vector<std::string>& more) {
    names.insert(names.end(), more.begin(), more.end());
  };
  for (const std::string& metric : manifest.metrics) {
    if (metric == "classes") {
      add(class_metrics());
    } else if (metric == "values") {
      add(value_metrics());
    } else if (metric_named(metric)) {
      add({metric});
    } else {
      throw ConfigError(one_line(fmt::format("[model] {}: metric '{}' is unknown; {}",
                                             (folder / "manifest.json").string(), metric,
                                             metric_advice(metric))));
    }
  }
  return names;
}

}  // namespace

Task package_task(const fs::path& folder) {
  // Dry runs may make small tensors real.
  if (is_dry(at::empty({int64_t{1} << 20}))) {
    throw NeedsValues("[model] " + folder.string() + ": a package is not loaded in a dry run");
  }
  const auto package = std::make_shared<Package>(folder);
  const PackageManifest& manifest = package->manifest();
  Task task{.module = package->module()};
  PhaseSpec& phase = task.phases.emplace_back();
  phase.forward = [package](const Batch& batch) { return package->train(batch); };
  for (const auto& term : manifest.terms) {
    phase.objectives.front().terms.push_back({.name = term.name, .weight = term.weight});
  }
  task.predict = [package](const Batch& batch) { return package->predict(batch); };
  task.metrics = metrics_of(manifest, folder);
  task.classes = manifest.classes;
  task.facts = package->facts();
  return task;
}

PackageSamples samples_of_package(const fs::path& folder) {
  const fs::path file = folder / "manifest.json";
  const PackageManifest manifest = parse_package_manifest(read_file(file), file.string());
  const auto& batch = manifest.ranges.at("batch");
  return {.most = batch.max, .multiple = batch.multiple};
}

Task package_kind(const ModelOptions& options, const DataInfo& /*info*/) {
  if (options.path.empty()) {
    throw ConfigError("[model] kind package needs its folder; set model.path");
  }
  return package_task(options.path);
}

}  // namespace tanren
