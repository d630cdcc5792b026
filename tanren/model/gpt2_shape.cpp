#include "tanren/model/gpt2_shape.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/model/supervised.h"

#include <fmt/ranges.h>

#include <string>

namespace tanren {
namespace {

struct Gpt2Preset {
  const char* name;
  int64_t num_layers, num_heads, hidden_size;
};
// From the config.json files that were published with the weights; all have 1024 positions.
constexpr Gpt2Preset kGpt2Presets[] = {{"gpt2", 12, 12, 768},
                                       {"distilgpt2", 6, 12, 768},
                                       {"gpt2-medium", 24, 16, 1024},
                                       {"gpt2-large", 36, 20, 1280},
                                       {"gpt2-xl", 48, 25, 1600}};

Gpt2Shape preset_named(const std::string& size) {
  std::vector<std::string> names;
  for (const auto& preset : kGpt2Presets) {
    names.emplace_back(preset.name);
    if (size != preset.name && !(size.empty() && names.size() == 1)) continue;
    return {.num_layers = preset.num_layers,
            .num_heads = preset.num_heads,
            .hidden_size = preset.hidden_size,
            .intermediate_size = 4 * preset.hidden_size};
  }
  throw ConfigError("[model] size '" + size + "' is unknown; there are " + join(names));
}

// `has_weights`: the model starts from weights, whose sizes are fixed.
void check_data(const Gpt2Shape& shape, const DataInfo& info, bool has_weights) {
  if (info.vocab_size < 1) {
    throw ConfigError(fmt::format(
        "[model] gpt2 reads tokens, and the inputs of this data, of shape [{}], are none; set "
        "data.train.kind = \"text\" or \"tokens\"",
        fmt::join(info.input_shape, ", ")));
  }
  if (info.input_shape.size() != 1) {
    throw ConfigError(
        fmt::format("[model] gpt2 reads one sequence of tokens a sample, and the inputs of this "
                    "data have shape [{}]; give sequences [T]",
                    fmt::join(info.input_shape, ", ")));
  }
  if (info.vocab_size > shape.vocab_size) {
    throw ConfigError(fmt::format("[model] vocab_size {} is smaller than the data's {} tokens; {}",
                                  shape.vocab_size, info.vocab_size,
                                  has_weights
                                      ? "these weights have no more: give data of their tokenizer"
                                      : "set model.vocab_size = 0 to take the data's"));
  }
  if (info.input_shape[0] > shape.context_length) {
    throw ConfigError(
        fmt::format("[model] sequences of {} tokens do not fit a context_length of {}; {} "
                    "data.train.context = {}",
                    info.input_shape[0], shape.context_length,
                    has_weights ? "these weights have no more positions: set"
                                : "raise model.context_length, or set",
                    shape.context_length));
  }
}

}  // namespace

Gpt2Shape gpt2_shape(const ModelOptions& options, const DataInfo& info) {
  if (!options.task.empty() && options.task != "next_token" && options.task != "classify") {
    throw ConfigError("[model] gpt2 has no task '" + options.task +
                      "'; set next_token or classify");
  }
  Gpt2Shape shape = preset_named(options.size);
  if (options.num_layers > 0) shape.num_layers = options.num_layers;
  if (options.num_heads > 0) shape.num_heads = options.num_heads;
  if (options.hidden_size > 0) shape.hidden_size = options.hidden_size;
  shape.intermediate_size =
      options.intermediate_size > 0 ? options.intermediate_size : 4 * shape.hidden_size;
  if (options.context_length > 0) shape.context_length = options.context_length;
  shape.vocab_size = options.vocab_size > 0 ? options.vocab_size : info.vocab_size;
  for (double* dropout :
       {&shape.embedding_dropout, &shape.attention_dropout, &shape.residual_dropout}) {
    *dropout = options.dropout.value_or(*dropout);
  }
  shape.embedding_dropout = options.embedding_dropout.value_or(shape.embedding_dropout);
  shape.attention_dropout = options.attention_dropout.value_or(shape.attention_dropout);
  shape.fused_attention_dropout = options.fused_attention_dropout;
  shape.residual_dropout = options.residual_dropout.value_or(shape.residual_dropout);
  shape.layer_norm_eps = options.layer_norm_eps.value_or(shape.layer_norm_eps);
  shape.initializer_range = options.initializer_range.value_or(shape.initializer_range);
  shape.label_smoothing = options.label_smoothing;
  check_data(shape, info, !options.from_hf.empty() || !options.init_from.empty());
  if (shape.hidden_size % shape.num_heads != 0) {
    throw ConfigError(
        fmt::format("[model] hidden_size {} cannot be divided among num_heads {}; make it a "
                    "multiple of the heads",
                    shape.hidden_size, shape.num_heads));
  }
  if (options.task == "classify") shape.outputs = num_outputs(options, info);
  return shape;
}

}  // namespace tanren
