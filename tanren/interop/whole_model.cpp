#include "tanren/interop/whole_model.h"

#include "tanren/base/error.h"
#include "tanren/base/text.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/text_table.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/export.h"
#include "tanren/interop/model_description.h"
#include "tanren/train/build.h"
#include "tanren/train/model_dtype.h"

#include <ATen/core/Tensor.h>

#include <utility>

namespace tanren {

namespace fs = std::filesystem;

std::unique_ptr<Dataset> WholeModel::open(const fs::path& data) const {
  SourceOptions source = config.data.eval;
  source.path = data.string();
  read_as_text(source, info.tokenizer != nullptr, "data");
  source.encoding = config.data.encoding;
  return kinds.open(source, "data", &info);
}

Batch WholeModel::texts(const std::vector<std::string>& first,
                        const std::vector<std::string>& second) const {
  SourceOptions source = config.data.eval;
  const bool pairs = !source.text_pair.empty();
  if (source.kind != "text_table" || info.tokenizer == nullptr) {
    throw ConfigError("[model] this model's data are of kind " + source.kind +
                      ", no texts; make its batches with open()");
  }
  if (first.empty() || second.size() != (pairs ? first.size() : 0)) {
    throw ConfigError(fmt::format("[model] this model reads {}; got {} and {}",
                                  pairs ? "pairs of texts" : "one text a sample", first.size(),
                                  second.size()));
  }
  source.path = "texts";
  std::vector<TextRow> rows;
  for (size_t i = 0; i < first.size(); ++i) {
    rows.push_back({static_cast<int64_t>(i), first[i], pairs ? second[i] : ""});
  }
  const auto tokenizer = load_tokenizer(*info.tokenizer, "tokenizer");
  const EncodedTexts encoded = encode_texts(rows, *tokenizer, source, "model");
  std::vector<int64_t> all(first.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  Batch batch;
  batch.fields = padded_fields(encoded, all, source, pad_token_of(*tokenizer));
  batch.ids = ids_of(all);
  return batch;
}

Batch WholeModel::images(const std::vector<fs::path>& files) const {
  SourceOptions source = config.data.eval;
  if (source.kind != "images" || files.empty()) {
    throw ConfigError(
        fmt::format("[model] this model's data are of kind {}; got {} image files to read",
                    source.kind, files.size()));
  }
  source.broken = "error";
  std::vector<int64_t> all(files.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const Batch labelled = open_image_files(source, "model", files)->collate(all).batch;
  Batch batch;
  batch.fields.set("inputs", labelled["inputs"]);
  batch.ids = labelled.ids;
  return batch;
}

WholeModel load_model(const fs::path& file, const Registry& registry) {
  const SafetensorsFile read = read_safetensors(file);
  const auto description = description_of(read.metadata, file, {}, registry.known());
  QuantizeNote note = check_described(description, read, file.string(), registry.models);
  WholeModel model;
  model.config = description.config;
  model.info = description.info;
  model.task = build_described(model.config.model, model.info, read, note, file.string(),
                               registry.models, at::kFloat);
  move_module(*model.task.module, at::kCPU, PrecisionPlan());  // fp32, as texts() and images() are
  model.task.module->eval();
  model.kinds = registry.datasets;
  const WeightsOrigin origin = weights_origin(read.metadata);
  model.step = origin.step;
  model.averaged = origin.averaged;
  model.quantized = std::move(note);
  model.metadata = read.metadata;
  return model;
}

void write_whole_model(const fs::path& file, const WholeModel& model) {
  if (!model.quantized.empty() && model.eight_bit.empty()) {
    throw InputError(
        "[model] the 8-bit weights came from a file, and only its task has them; copy "
        "that file to " +
        file.string());
  }
  write_whole_model(file, tensors_of(*model.task.module), model.metadata, model.eight_bit,
                    model.quantized);
}

}  // namespace tanren
