#include "tanren/predict/encoder.h"

#include "tanren/base/counted.h"
#include "tanren/base/error.h"
#include "tanren/base/one_line.h"
#include "tanren/base/text.h"
#include "tanren/data/image/header.h"
#include "tanren/data/image/reader.h"
#include "tanren/data/image/transform.h"
#include "tanren/data/table_columns.h"

#include <ATen/ATen.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace tanren {

namespace {

constexpr int64_t kNoTarget = -100;

int64_t elements_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> batch_shape(int64_t rows, const std::vector<int64_t>& shape) {
  std::vector<int64_t> sizes{rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return sizes;
}

bool is_blank(const std::string& text) { return trimmed(text).empty(); }

// Why the text cannot be tokenized; empty: it can. `what`: "text", "second text".
std::string problem_of_text(const std::string& text, const char* what) {
  if (is_blank(text)) return fmt::format("the {} is empty; fill it or drop the row", what);
  std::string_view rest = text;
  while (const size_t size = rest.empty() ? 0 : character_size(rest)) rest.remove_prefix(size);
  if (rest.empty()) return "";
  return fmt::format("byte {} (0x{:02X}) of the {} is no UTF-8; convert it",
                     text.size() - rest.size() + 1, static_cast<unsigned char>(rest.front()), what);
}

TextRow text_row(const Sample& sample, bool pairs) {
  return {0, sample.text, pairs ? sample.pair : "", ""};
}

// The target of each token is the one that follows it; the last has none.
at::Tensor next_tokens(const at::Tensor& inputs) {
  at::Tensor targets = at::full_like(inputs, kNoTarget);
  if (inputs.size(1) > 1) {
    targets.narrow(1, 0, inputs.size(1) - 1).copy_(inputs.narrow(1, 1, inputs.size(1) - 1));
  }
  return targets;
}

}  // namespace

int64_t EncodedSamples::length(int64_t index) const {
  const int64_t text = text_of.empty() ? -1 : text_of[static_cast<size_t>(index)];
  return text < 0 ? 0 : texts.end(text) - texts.begin(text);
}

Encoder::Encoder(const RunConfig& config, DataInfo info, AnswerKind answers)
    : model_kind_(config.model.kind),
      task_(config.model.task),
      source_(config.data.eval),
      info_(std::move(info)),
      answers_(answers) {
  if (source_.kind == "csv" && info_.table != nullptr) cells_.emplace(info_.table, source_);
  if (source_.kind != "text_table") return;
  if (info_.tokenizer == nullptr) {
    throw ConfigError(
        "[predict] the model has no tokenizer, so it cannot read texts; export it again from its "
        "run");
  }
  tokenizer_ = load_tokenizer(*info_.tokenizer, "tokenizer");
  pad_token_ = pad_token_of(*tokenizer_);
}

float Encoder::scaled(double number) const {
  return static_cast<float>(number * source_.scale + source_.offset);
}

std::string Encoder::take_columns(Sample& sample) const {
  for (const std::string& name : info_.feature_names) {
    if (sample.cells.empty() || sample.cells.contains(name)) continue;
    return "has no cell \"" + name + "\"; the model reads " + columns_text(info_.feature_names);
  }
  return cells_ ? take_inputs(sample) : take_numbers(sample);
}

std::string Encoder::take_inputs(Sample& sample) const {
  if (!sample.inputs.empty()) return "";
  const TableEncoding& table = cells_->table();
  const bool has_cells = !sample.cells.empty();
  if (!has_cells && sample.numbers.size() != table.columns.size()) {
    return fmt::format("has {}, and the model reads {}: {}",
                       counted(sample.numbers.size(), "number"),
                       counted(table.columns.size(), "column"), columns_text(info_.feature_names));
  }
  sample.inputs.resize(static_cast<size_t>(table.width()));
  float* input = sample.inputs.data();
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const TableColumn& column = table.columns[i];
    if (!has_cells && column.is_category) {
      return "has numbers, and column " + column.name + " is a category; give its cells";
    }
    const std::string cell = has_cells ? sample.cells.at(column.name) : to_text(sample.numbers[i]);
    const CellProblem problem =
        has_cells ? cells_->encode(i, cell, input) : cells_->encode(i, sample.numbers[i], input);
    if (problem != CellProblem::none) return cell_text(problem, column.name, cell);
    input += column.width();
  }
  return "";
}

std::string Encoder::take_numbers(Sample& sample) const {
  if (!sample.numbers.empty()) return "";
  for (const std::string& name : info_.feature_names) {
    const auto cell = sample.cells.find(name);
    if (cell == sample.cells.end()) break;
    double number = 0;
    CellProblem problem =
        parse_number(cell->second, source_.decimal.empty() ? "." : source_.decimal, number);
    if (problem == CellProblem::none && !std::isfinite(number)) problem = CellProblem::not_finite;
    if (is_blank(cell->second)) problem = CellProblem::missing;
    if (problem != CellProblem::none) return cell_text(problem, name, cell->second);
    sample.numbers.push_back(number);
  }
  return "";
}

std::string Encoder::problem_of(const Sample& sample) const {
  const std::string& kind = source_.kind;
  if (kind == "text_table") {
    std::string problem = problem_of_text(sample.text, "text");
    if (!problem.empty()) return problem;
    if (!source_.text_pair.empty()) return problem_of_text(sample.pair, "second text");
    return sample.pair.empty() ? "" : "the model reads one text, and there are two";
  }
  if (kind == "csv") {
    const int64_t wanted = elements_of(info_.input_shape);
    if (cells_ && std::ssize(sample.inputs) != wanted) {
      return fmt::format("has {}, and the model reads {}", counted(sample.inputs.size(), "input"),
                         wanted);
    }
    if (cells_) return "";
    if (std::ssize(sample.numbers) != wanted) {
      return fmt::format("has {}, and the model reads {}", counted(sample.numbers.size(), "number"),
                         wanted);
    }
    for (const double number : sample.numbers) {
      if (std::isfinite(scaled(number))) continue;
      return to_text(number) + " is too large for a 32-bit float, or no number; scale it down";
    }
    return "";
  }
  if (kind == "images") {
    return sample.image.empty() && sample.image_file.empty() ? "has no image" : "";
  }
  return sample.tensors.contains("inputs") ? "" : "has no tensor \"inputs\"";
}

EncodedSamples Encoder::encode(std::vector<Sample> samples) const {
  EncodedSamples encoded;
  encoded.samples = std::move(samples);
  std::vector<TextRow> rows;
  const bool pairs = !source_.text_pair.empty();
  for (Sample& sample : encoded.samples) {
    const std::string problem = source_.kind == "csv" ? take_columns(sample) : "";
    encoded.broken.push_back(problem.empty() ? problem_of(sample) : problem);
    if (tokenizer_ == nullptr) continue;
    encoded.text_of.push_back(encoded.broken.back().empty() ? std::ssize(rows) : -1);
    if (encoded.broken.back().empty()) rows.push_back(text_row(sample, pairs));
  }
  if (rows.empty()) return encoded;
  try {
    encoded.texts = encode_texts(rows, *tokenizer_, source_, "predict");
  } catch (const DataError&) {  // a text has no token: find it, encode the others
    rows.clear();
    for (size_t i = 0; i < encoded.samples.size(); ++i) {
      if (encoded.text_of[i] < 0) continue;
      const TextRow row = text_row(encoded.samples[i], pairs);
      encoded.text_of[i] = std::ssize(rows);
      try {
        encode_texts({row}, *tokenizer_, source_, "predict");
        rows.push_back(row);
      } catch (const DataError&) {
        encoded.text_of[i] = -1;
        encoded.broken[i] = "the text holds no token; fill it or drop the row";
      }
    }
    if (!rows.empty()) encoded.texts = encode_texts(rows, *tokenizer_, source_, "predict");
  }
  return encoded;
}

void Encoder::fill_numbers(const EncodedSamples& samples, const std::vector<int64_t>& indices,
                           Batch& batch) const {
  at::Tensor inputs =
      at::empty(batch_shape(std::ssize(indices), info_.input_shape), at::TensorOptions(at::kFloat));
  auto* to = inputs.mutable_data_ptr<float>();
  for (const int64_t index : indices) {
    const Sample& sample = samples.samples[static_cast<size_t>(index)];
    if (cells_) {
      to = std::copy(sample.inputs.begin(), sample.inputs.end(), to);
      continue;
    }
    for (const double number : sample.numbers) *to++ = scaled(number);
  }
  batch.fields.set("inputs", inputs);
  batch.ids = ids_of(indices);
}

void Encoder::fill_images(const EncodedSamples& samples, const std::vector<int64_t>& indices,
                          std::vector<std::string>& broken, Batch& batch) const {
  const auto [height, width] = image_size(source_);
  const int64_t pixels = height * width;
  at::Tensor inputs = at::empty({std::ssize(indices), source_.channels, height, width}, at::kFloat);
  auto* planes = inputs.mutable_data_ptr<float>();
  std::vector<int64_t> kept;
  Workbench bench;
  FileBuffer buffer;
  for (const int64_t index : indices) {
    const Sample& sample = samples.samples[static_cast<size_t>(index)];
    try {
      // A file that is no image is not read whole.
      if (!sample.image_file.empty()) buffer.check(sample.image_file, source_.max_pixels);
      const std::string_view bytes = sample.image_file.empty() ? std::string_view(sample.image)
                                                               : buffer.read(sample.image_file);
      const OpenedImage image{bytes, *image_header(bytes, /*whole=*/true)};
      check_pixels(image.header, source_.max_pixels);
      const View view =
          evaluation_view(source_, image.header.shown_width(), image.header.shown_height());
      const Placement whole{stored_view(view, image.header, planes), source_.channels};
      bench.place(image, {&whole, 1}, 1);
      normalise(source_, planes, pixels);
    } catch (const BrokenImage& error) {
      broken[static_cast<size_t>(index)] = error.what();
      continue;
    }
    planes += source_.channels * pixels;
    kept.push_back(index);
  }
  batch.fields.set("inputs", inputs.narrow(0, 0, std::ssize(kept)));
  batch.ids = ids_of(kept);
}

void Encoder::fill_tensors(const EncodedSamples& samples, const std::vector<int64_t>& indices,
                           Batch& batch) const {
  const TensorMap& first = samples.samples[static_cast<size_t>(indices.front())].tensors;
  for (const auto& [name, tensor] : first) {
    std::vector<at::Tensor> rows;
    for (const int64_t index : indices) {
      rows.push_back(samples.samples[static_cast<size_t>(index)].tensors.at(name));
    }
    batch.fields.set(name, at::cat(rows, 0));
  }
  batch.ids = ids_of(indices);
}

Batch Encoder::batch(const EncodedSamples& samples, const std::vector<int64_t>& indices,
                     std::vector<std::string>& broken) const {
  Batch batch;
  if (source_.kind == "text_table") {
    std::vector<int64_t> texts;
    for (const int64_t index : indices) {
      texts.push_back(samples.text_of[static_cast<size_t>(index)]);
    }
    batch.fields = padded_fields(samples.texts, texts, source_, pad_token_);
    batch.ids = ids_of(indices);
  } else if (source_.kind == "csv") {
    fill_numbers(samples, indices, batch);
  } else if (source_.kind == "images") {
    fill_images(samples, indices, broken, batch);
  } else {
    fill_tensors(samples, indices, batch);
  }
  add_labels(batch);
  return batch;
}

Batch Encoder::probe(const Sample& like) const {
  Batch batch;
  if (source_.kind == "text_table") {
    const at::Tensor ids = at::zeros({1, source_.context}, at::kLong);
    batch.fields.set("inputs", ids);
    batch.fields.set("attention_mask", at::ones_like(ids));
    if (!source_.text_pair.empty()) batch.fields.set("token_types", at::zeros_like(ids));
  } else if (source_.kind == "csv" || source_.kind == "images") {
    batch.fields.set("inputs", at::zeros(batch_shape(1, info_.input_shape), at::kFloat));
  } else {
    for (const auto& [name, tensor] : like.tensors) batch.fields.set(name, tensor);
  }
  batch.ids = ids_of({0});
  add_labels(batch);
  return batch;
}

void Encoder::add_labels(Batch& batch) const {
  if (batch.fields.contains("labels")) return;
  const at::Tensor& inputs = batch["inputs"];
  const int64_t rows = inputs.size(0);
  at::Tensor labels;
  if (answers_ == AnswerKind::tokens) {
    // The target of a model that fills masks is the token at the same place.
    const bool same_place = task_ == "masked_lm" || model_kind_ == "bert";
    labels = same_place ? inputs : next_tokens(inputs);
    if (const at::Tensor* mask = batch.fields.find("attention_mask")) {
      // Padding is no target, and nothing follows the last token before it.
      const at::Tensor padded = mask->eq(0);
      labels = labels.masked_fill(padded, kNoTarget);
      if (!same_place && labels.size(1) > 1) {
        const int64_t rest = labels.size(1) - 1;
        labels.narrow(1, 0, rest).masked_fill_(padded.narrow(1, 1, rest), kNoTarget);
      }
    }
  } else if (info_.class_labels) {
    labels = at::zeros({rows}, at::kLong);
  } else {
    labels = info_.outputs == 1 ? at::zeros({rows}, at::kFloat)
                                : at::zeros({rows, info_.outputs}, at::kFloat);
  }
  batch.fields.set("labels", labels);
}

}  // namespace tanren
