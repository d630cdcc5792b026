#include "tanren/interop/python_folder.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"
#include "tanren/checkpoint/folder_weights.h"
#include "tanren/formats/safetensors.h"
#include "tanren/interop/compressed_tensors.h"
#include "tanren/interop/described_task.h"
#include "tanren/interop/export.h"
#include "tanren/interop/hf_config.h"
#include "tanren/interop/new_folder.h"
#include "tanren/interop/pix2pixhd_folder.h"
#include "tanren/interop/quantized_tensors.h"
#include "tanren/model/bert_shape.h"
#include "tanren/model/gpt2_shape.h"
#include "tanren/model/lstm.h"

#include <nlohmann/json.hpp>
#include <ATen/ATen.h>

#include <set>
#include <string_view>
#include <utility>

namespace tanren {

namespace fs = std::filesystem;

namespace {

using OrderedJson = nlohmann::ordered_json;

std::string text_of(const OrderedJson& json) { return json_text(json, 2) + "\n"; }

// Casts floating tensors to `dtype`, except for `scales`. CheckpointError if a finite number
// overflows in it.
TensorMap cast(const TensorMap& tensors, at::ScalarType dtype,
               const std::set<std::string>& scales) {
  TensorMap all;
  for (const auto& [name, tensor] : tensors) {
    if (scales.count(name) > 0) {
      all.set(name, tensor);
      continue;
    }
    const at::Tensor narrow = tensor.is_floating_point() ? tensor.to(dtype) : tensor;
    if (tensor.is_floating_point() && (narrow.isinf() & tensor.isfinite()).any().item<bool>()) {
      throw CheckpointError("[convert] tensor " + name + " is too large for " +
                            c10::toString(dtype) + "; convert to bf16 or fp32");
    }
    all.set(name, narrow);
  }
  return all;
}

// compressed-tensors opens the scales in the model's dtype. CheckpointError for a scale that is
// infinite in this dtype, or that is 0 although not all its weights are 0.
void check_scales(const TensorMap& tensors, const std::set<std::string>& scales,
                  at::ScalarType dtype) {
  for (const auto& [name, tensor] : tensors) {
    if (scales.count(name) == 0) continue;
    const at::Tensor narrow = tensor.to(dtype);
    at::Tensor is_lost = narrow.eq(0);
    const size_t weight = name.size() - std::string_view("_scale").size();
    if (const at::Tensor* values = tensors.find(name.substr(0, weight))) {
      is_lost &= values->reshape({tensor.size(0), tensor.size(1), -1}).ne(0).any(-1);
    }
    if (!is_lost.logical_or(narrow.isinf()).any().item<bool>()) continue;
    throw CheckpointError(
        fmt::format("[convert] tensor {} has a scale that is 0 or infinite in {}, in which "
                    "compressed-tensors opens it; convert to bf16 or fp32",
                    name, c10::toString(dtype)));
  }
}

at::ScalarType dtype_of(const TensorMap& tensors, const std::set<std::string>& scales) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.is_floating_point() && scales.count(name) == 0) return tensor.scalar_type();
  }
  return at::kFloat;
}

// What transformers' tokenizer classes need to know, if the tokenizer's files do not say it.
std::string tokenizer_config(const TokenizerFiles& files, int64_t context) {
  OrderedJson json;
  if (files.count("tokenizer.json") > 0) {
    json["tokenizer_class"] = "PreTrainedTokenizerFast";
  } else if (files.count("vocab.txt") > 0) {
    json["tokenizer_class"] = "BertTokenizer";
    json["do_lower_case"] = true;
  } else {
    json["tokenizer_class"] = "GPT2Tokenizer";
  }
  json["model_max_length"] = context;
  return text_of(json);
}

// How the cells of a table's row become inputs, column by column in the order of the inputs, for
// programs that read raw rows. Empty if the columns have no names.
OrderedJson columns_json(const DataInfo& info) {
  OrderedJson columns = OrderedJson::array();
  if (info.table == nullptr) {
    for (const std::string& name : info.feature_names) {
      columns.push_back(OrderedJson{{"name", name}});
    }
    return columns;
  }
  for (const TableColumn& column : info.table->columns) {
    OrderedJson one{{"name", column.name}};
    if (column.is_category) {
      one["values"] = column.values;  // an input each
    } else if (info.table->standardizes) {
      one["mean"] = column.mean;
      one["std"] = column.deviation;
    }
    if (!column.is_category && info.table->fills) one["fill"] = column.fill;
    columns.push_back(std::move(one));
  }
  return columns;
}

// Expands the 8-bit weights, except for a bert's linear layers, for which Python has a form.
CompressedBert without_8_bits(SafetensorsFile& read, const QuantizeNote& note,
                              const std::string& kind, const fs::path& file) {
  CompressedBert compressed;
  if (note.empty()) return compressed;
  if (kind == "bert") {
    compressed = compressed_bert(read.tensors, note, file.string());
    read.tensors = std::move(compressed.tensors);
    return compressed;
  }
  read.tensors = expanded(read.tensors, note, file.string());
  compressed.remark = fmt::format(
      "{} 8-bit weights are expanded to fp32; Python has no form for them in a model of kind {}",
      note.readers.size(), kind);
  return compressed;
}

class Writer {
 public:
  // `compressed`: the config and scales of a bert with 8-bit weights, and the remark; else empty.
  Writer(const ModelDescription& description, std::optional<PackageNote> package, TensorMap tensors,
         const CompressedBert& compressed, NewFolder& folder)
      : description_(description),
        package_(std::move(package)),
        tensors_(std::move(tensors)),
        compressed_(compressed),
        folder_(folder) {}

  PythonFolder write() {
    const std::string& kind = description_.config.model.kind;
    if (kind == "bert" || kind == "gpt2") {
      write_transformers(kind == "bert");
    } else if (package_ && !package_->hf_config.empty()) {
      write_package();
    } else if (kind == "pix2pixhd") {
      result_.files = write_pix2pixhd_folder(folder_, tensors_);
      result_.opened_by = fmt::format("netG.load_state_dict(torch.load(\"{}\"))",
                                      (folder_.path() / result_.files.front()).string());
    } else {
      write_state_dict(kind);
    }
    return std::move(result_);
  }

 private:
  // Where the file is written.
  fs::path place_of(const std::string& name) {
    result_.files.push_back(name);
    return folder_.place_of(name);
  }
  void file(const std::string& name, const std::string& text) { write_file(place_of(name), text); }

  // The class and its config.json are Python's own.
  void write_package() {
    write_safetensors(place_of("model.safetensors"), tensors_, {{"format", "pt"}});
    file("config.json", package_->hf_config);
    if (description_.info.tokenizer) {
      for (const auto& [name, text] : *description_.info.tokenizer) file(name, text);
    }
    result_.opened_by = "transformers." + package_->class_name + ".from_pretrained(\"" +
                        folder_.path().string() + "\")";
  }

  void write_transformers(bool is_bert) {
    const ModelOptions& model = description_.config.model;
    const DataInfo& info = description_.info;
    const std::string dtype = c10::getDtypeNames(dtype_of(tensors_, compressed_.scales)).first;
    std::string config = hf_config_of(model, info, dtype);
    auto parsed = parse_ordered_json(config);
    if (!compressed_.config.empty()) {
      parsed["quantization_config"] = parse_ordered_json(compressed_.config);
      config = text_of(parsed);
    }
    write_safetensors(place_of("model.safetensors"), tensors_, {{"format", "pt"}});
    file("config.json", config);
    if (info.tokenizer) {
      for (const auto& [name, text] : *info.tokenizer) file(name, text);
      if (info.tokenizer->count("tokenizer_config.json") == 0) {
        file("tokenizer_config.json", tokenizer_config(*info.tokenizer, context(is_bert)));
      }
    }
    result_.opened_by = "transformers." + parsed["architectures"][0].get<std::string>() +
                        ".from_pretrained(\"" + folder_.path().string() + "\")";
    if (!is_bert) return;
    const BertShape shape = bert_shape(model, info);
    if (shape.embedding_dropout != shape.residual_dropout) {
      result_.remarks.emplace_back(
          "config.json has one hidden_dropout_prob: that of residual_dropout; embedding_dropout "
          "differs");
    }
  }

  // Tokens of the longest sequence that the model was made for.
  int64_t context(bool is_bert) const {
    const ModelOptions& model = description_.config.model;
    const DataInfo& info = description_.info;
    const int64_t length = info.input_shape.at(0);
    if (length != kAnySize) return length;
    return is_bert ? bert_shape(model, info).context_length
                   : gpt2_shape(model, info).context_length;
  }

  void write_state_dict(const std::string& kind) {
    const fs::path weights = place_of("model.pth");
    write_weights(weights, tensors_);
    const DataInfo& info = description_.info;
    const SourceOptions& source = description_.config.data.eval;
    OrderedJson json{{"kind", kind}};
    std::string module = "model";
    if (kind == "resnet" || kind == "vgg") {
      std::string size = description_.config.model.size;
      if (size.empty()) size = kind == "resnet" ? "resnet18" : "vgg11";
      json["torchvision"] = size;
      module = fmt::format("torchvision.models.{}(num_classes={})", size, outputs());
    }
    if (kind == "lstm") json["torch.nn"] = lstm_parts();
    if (package_) json["class"] = package_->class_name;
    json["outputs"] = outputs();
    if (!info.class_names.empty()) json["classes"] = info.class_names;
    const bool is_binary = description_.config.model.loss == "bce" && info.class_labels;
    if (is_binary && info.class_names.size() == 2) {
      json["positive_class"] = info.class_names[1];  // the class of the one output
    }
    json["input_shape"] = info.input_shape;
    if (source.kind == "images") {
      json["preprocessing"] = {{"size", source.size},
                               {"resize", source.resize},
                               {"crop", source.crop},
                               {"mean", source.mean},
                               {"std", source.std}};
    }
    if (source.kind == "csv") {
      const bool standardizes = info.table != nullptr && info.table->standardizes;
      if (!standardizes) {
        json["preprocessing"] = {{"scale", source.scale}, {"offset", source.offset}};
      }
      const OrderedJson columns = columns_json(info);
      if (!columns.empty()) json["columns"] = columns;
      if (info.table != nullptr) json["decimal"] = info.table->decimal;
    }
    file("architecture.json", text_of(json));
    if (info.tokenizer) {
      for (const auto& [name, text] : *info.tokenizer) file(name, text);
    }
    result_.opened_by = module + ".load_state_dict(torch.load(\"" + weights.string() + "\"))";
  }

  // The number of outputs with which the model was built. The weights do not show it, because they
  // do not say which of their matrices is the head.
  int64_t outputs() const {
    const ModelOptions& model = description_.config.model;
    const DataInfo& info = description_.info;
    if (model.kind == "lstm") return lstm_shape(model, info).outputs;
    if (model.outputs > 0) return model.outputs;
    const bool is_binary = model.loss == "bce" && info.class_labels;
    return is_binary ? 1 : info.outputs;
  }

  OrderedJson lstm_parts() const {
    const LstmShape shape = lstm_shape(description_.config.model, description_.info);
    OrderedJson parts;
    if (shape.vocab_size > 0) {
      parts["embedding"] = {{"Embedding", {shape.vocab_size, shape.embedding_size}}};
    }
    const int64_t in = shape.vocab_size > 0 ? shape.embedding_size : shape.features;
    parts["lstm"] = {{"LSTM", {in, shape.hidden_size}},
                     {"num_layers", shape.num_layers},
                     {"batch_first", true},
                     {"bidirectional", shape.bidirectional},
                     {"dropout", shape.dropout}};
    parts["head"] = {
        {"Linear", {shape.hidden_size * (shape.bidirectional ? 2 : 1), shape.outputs}}};
    return parts;
  }

  const ModelDescription& description_;
  std::optional<PackageNote> package_;  // of a model that a package computes
  TensorMap tensors_;
  const CompressedBert& compressed_;
  NewFolder& folder_;
  PythonFolder result_;
};

}  // namespace

fs::path whole_file_of(const fs::path& path) {
  if (!fs::is_directory(path)) return path;
  if (fs::is_regular_file(path / kWholeFile)) return path / kWholeFile;
  throw ConfigError(fmt::format(
      "[convert] {} has no {}; a run writes it when it finishes, so resume with tanren run {}",
      path.string(), kWholeFile, path.string()));
}

PythonFolder write_python_folder(const fs::path& path, const fs::path& folder,
                                 std::optional<at::ScalarType> dtype, const Registry& registry) {
  const fs::path file = whole_file_of(path);
  SafetensorsFile read = read_safetensors(file);
  const Metadata metadata = read.metadata;
  const auto description = description_of(metadata, file, {}, registry.known());
  std::string remark;
  if (fs::is_directory(path)) {
    const FolderWeights newest = weights_of_folder(path);
    remark = newest.remark;
    if (!remark.empty()) read = {read_weights(newest.file).content.tensors, {}};
  }
  const QuantizeNote note = check_described(description, read, file.string(), registry.models);
  if (description.config.model.append_head > 0) {
    throw ConfigError("[convert] " + file.string() +
                      " has an appended head, which no class of Python's packages has; convert it "
                      "to a .safetensors or .pt file");
  }
  const CompressedBert compressed = without_8_bits(read, note, description.config.model.kind, file);
  if (dtype) read.tensors = cast(read.tensors, *dtype, compressed.scales);
  check_scales(read.tensors, compressed.scales, dtype_of(read.tensors, compressed.scales));
  NewFolder made(folder);
  PythonFolder written =
      Writer(description, package_note(metadata, file), std::move(read.tensors), compressed, made)
          .write();
  made.keep();
  if (!compressed.remark.empty()) {
    written.remarks.insert(written.remarks.begin(), compressed.remark);
  }
  if (!remark.empty()) written.remarks.insert(written.remarks.begin(), remark);
  return written;
}

}  // namespace tanren
