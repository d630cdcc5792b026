#include "tanren/post_training/quantize_subject.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/config/renamed_keys.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/export.h"
#include "tanren/interop/model_description.h"
#include "tanren/post_training/calibration_samples.h"
#include "tanren/run/held_out.h"
#include "tanren/run/prepare_whole.h"
#include "tanren/run/run.h"
#include "tanren/run/run_folder.h"
#include "tanren/run/same_table.h"

#include <algorithm>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

// The samples of a dataset from number `begin` on, under their own numbers less `begin`.
class LaterSamples : public Dataset {
 public:
  LaterSamples(const Dataset& all, int64_t begin) : all_(all), begin_(begin) {}

  int64_t size() const override { return all_.size() - begin_; }
  DataInfo info() const override { return all_.info(); }
  std::string sample_name(int64_t index) const override { return all_.sample_name(index + begin_); }
  int64_t source_row(int64_t index) const override { return all_.source_row(index + begin_); }
  std::string remarks() const override { return all_.remarks(); }

  Collated collate(const std::vector<int64_t>& indices) const override {
    check_indices(indices, size());
    std::vector<int64_t> theirs = indices;
    for (int64_t& index : theirs) index += begin_;
    Collated made = all_.collate(theirs);
    if (made.batch.ids.defined()) made.batch.ids = made.batch.ids - begin_;
    return made;
  }

 private:
  const Dataset& all_;
  int64_t begin_;
};

void refuse_8_bit(const Metadata& metadata, const fs::path& file) {
  if (metadata.count(kQuantizeKey) == 0) return;
  throw ConfigError("[quantize] " + file.string() +
                    " has 8-bit weights already; give the model in fp32 that they were made from, "
                    "or its run folder");
}

// The exported weights become 8-bit, so they must be those that other verbs take.
void check_export(const fs::path& folder, const std::set<std::string>& requested) {
  if (requested.count("evaluate.checkpoint") > 0) {
    throw ConfigError(
        "[quantize] takes the weights that the run exported; drop evaluate.checkpoint");
  }
  if (weights_of_folder(folder).remark.empty()) return;
  throw CheckpointError("[quantize] " + folder.string() +
                        " went on after its export, which has older weights; end it with tanren "
                        "run " +
                        folder.string());
}

// What a quantisation measures is a plain evaluation in fp32 or bf16 on one rank of the CPU.
void make_plain(RunConfig& config) {
  const PrecisionOptions& precision = config.precision;
  if (!precision.level.empty() && precision.level != "O0") {
    throw ConfigError(
        "[quantize] 8-bit weights are made from fp32 ones, and precision.level is \"" +
        precision.level + "\"; drop it with --set precision.level=");
  }
  if (precision.mode != "auto" && precision.mode != "fp32" && precision.mode != "bf16") {
    throw ConfigError(
        "[quantize] 8-bit weights stand in for fp32 and bf16, and precision.mode is " +
        precision.mode + "; change it with --set precision.mode=fp32");
  }
  if (!precision.level.empty()) config.precision.mode = "fp32";
  config.precision.level.clear();
  config.run.device = "cpu";
  config.parallel = ParallelOptions();
  config.quantize = QuantizeOptions();
}

void make_parts(QuantizeSubject& subject, Prepared& prepared, const Registry& registry) {
  fit_threads(prepared);
  const auto parts_in = [&](const char* mode) {
    RunConfig config = prepared.config;
    config.precision.mode = mode;
    Plan plan = prepared.fit.plan(config);
    plan.device.threads = prepared.plan.device.threads;
    return build_parts(plan, nullptr, registry.accelerators);
  };
  subject.fp32 = parts_in("fp32");
  subject.bf16 = parts_in("bf16");
  subject.parts = build_parts(prepared.plan, nullptr, registry.accelerators);
  subject.config = std::move(prepared.config);
}

void check_samples(const QuantizeSubject& subject, int64_t there) {
  if (there >= kFewestSamples) return;
  throw ConfigError(fmt::format(
      "[quantize] {} samples of {} to calibrate with; at least {} are needed, take more data",
      to_text(there), subject.data, kFewestSamples));
}

void open_run(QuantizeSubject& subject, const fs::path& folder, const fs::path& data,
              const std::vector<std::string>& sets, const Registry& registry) {
  RunConfig config = config_of_folder(folder, sets, registry.known());
  const SafetensorsFile read = read_safetensors(subject.file);
  refuse_8_bit(read.metadata, subject.file);
  subject.metadata = read.metadata;
  subject.asked = config.quantize;
  const std::string trained = config_of_folder(folder, {}, registry.known()).quantize.scheme;
  if (trained != "none") subject.trained_scheme = trained;
  std::set<std::string> requested;
  for (const auto& set : sets) requested.insert(current_key(set.substr(0, set.find('='))));
  check_export(folder, requested);
  if (!data.empty()) {
    config = evaluated_on(config, data, requested);
  }
  make_plain(config);
  subject.metadata =
      in_precision(std::move(subject.metadata), config.precision, subject.file, registry.known());
  Prepared prepared = prepare(config, registry, /*has_weights=*/true, folder, {}, /*trains=*/false);
  if (!prepared.datasets.eval) {
    throw ConfigError("[quantize] the config of " + folder.string() +
                      " has no [data.eval], which judges; name data behind it");
  }
  const fs::path exported = exported_weights(folder).value_or(subject.file);
  if (config.data.eval.kind.empty()) check_held_out(config, prepared.datasets, exported);
  check_same_table(config, *prepared.datasets.train, exported, "quantize");
  make_parts(subject, prepared, registry);
  subject.state = build_run_state(std::move(prepared.task), subject.parts, /*trains=*/false);
  (void)load_exported(subject.state, subject.file);
  subject.datasets = std::move(prepared.datasets);
  subject.data = !data.empty() ? data.string() : "the run's evaluation data";
  check_samples(subject, subject.datasets.train->size());
  subject.calibration = spread_over(subject.datasets.train->size(), subject.asked.samples);
}

void open_whole(QuantizeSubject& subject, const fs::path& data,
                const std::vector<std::string>& sets, const Registry& registry) {
  const SafetensorsFile read = read_safetensors(subject.file);
  refuse_8_bit(read.metadata, subject.file);
  const std::string what = subject.file.string();
  ModelDescription description =
      description_of(read.metadata, subject.file, sets, registry.known());
  const QuantizeNote note = check_described(description, read, what, registry.models);
  subject.asked = description.config.quantize;
  make_plain(description.config);
  auto opened = open_described(description, data, subject.file, registry, "quantize");
  subject.metadata =
      in_precision(read.metadata, description.config.precision, subject.file, registry.known());
  subject.data = data.empty() ? "its data" : data.string();
  const int64_t size = opened->size(), samples = subject.asked.samples;
  if (size <= samples) {
    throw ConfigError(fmt::format(
        "[quantize] {} has {} samples; the first {} calibrate, and none is left that judges; set "
        "quantize.samples to fewer",
        subject.data, to_text(size), to_text(samples)));
  }
  Prepared prepared = prepare_whole(description, read, note, what, registry, std::move(opened));
  prepared.fit.dataset = prepared.datasets.eval.get();  // the training data are not available
  make_parts(subject, prepared, registry);
  subject.state = whole_state(std::move(prepared.task), subject.parts, read.metadata);
  subject.datasets = std::move(prepared.datasets);
  subject.later = std::make_unique<LaterSamples>(*subject.datasets.eval, samples);
  for (int64_t i = 0; i < samples; ++i) subject.calibration.push_back(i);
  subject.remarks.push_back(
      fmt::format("the first {} samples of {} calibrate and are left out of "
                  "the evaluation",
                  to_text(samples), subject.data));
}

}  // namespace

fs::path file_to_quantize(const fs::path& file) {
  std::error_code none;
  if (!fs::is_directory(file, none)) {
    if (file.extension() == ".safetensors") return file;
    throw ConfigError("[quantize] " + file.string() +
                      " is neither the folder of a run nor a whole model; give runs/NAME or a "
                      "model.tanren.safetensors");
  }
  if (fs::exists(file / kWholeFile, none)) return file / kWholeFile;
  throw CheckpointError("[quantize] " + file.string() + " has no " + kWholeFile +
                        ", which a run writes when it finishes; end it with tanren run " +
                        file.string());
}

std::unique_ptr<QuantizeSubject> open_subject(const fs::path& file, const fs::path& data,
                                              const std::vector<std::string>& sets,
                                              const Registry& registry) {
  auto subject = std::make_unique<QuantizeSubject>();
  subject->file = file_to_quantize(file);
  if (subject->file == file) {
    open_whole(*subject, data, sets, registry);
  } else {
    open_run(*subject, file, data, sets, registry);
  }
  return subject;
}

}  // namespace tanren
