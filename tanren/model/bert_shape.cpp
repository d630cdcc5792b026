#include "tanren/model/bert_shape.h"

#include "tanren/base/error.h"
#include "tanren/base/names.h"
#include "tanren/base/text.h"
#include "tanren/model/supervised.h"

#include <fmt/ranges.h>

#include <vector>

namespace tanren {
namespace {

struct BertPreset {
  const char* name;
  int64_t num_layers, num_heads, hidden_size, intermediate_size, vocab_size;
};
// From the config.json files that were published with the weights.
constexpr BertPreset kBertPresets[] = {{"bert-base-uncased", 12, 12, 768, 3072, 30522},
                                       {"bert-base-cased", 12, 12, 768, 3072, 28996},
                                       {"bert-base-multilingual-cased", 12, 12, 768, 3072, 119547},
                                       {"bert-base-chinese", 12, 12, 768, 3072, 21128},
                                       {"bert-large-uncased", 24, 16, 1024, 4096, 30522},
                                       {"bert-large-cased", 24, 16, 1024, 4096, 28996},
                                       {"bert-tiny", 2, 2, 128, 512, 30522},
                                       {"bert-mini", 4, 4, 256, 1024, 30522},
                                       {"bert-small", 4, 8, 512, 2048, 30522},
                                       {"bert-medium", 8, 8, 512, 2048, 30522}};

// An empty `size` gives the first preset, with the data's vocabulary.
BertShape preset_named(const std::string& size, const DataInfo& info) {
  std::vector<std::string> names;
  for (const auto& preset : kBertPresets) {
    names.emplace_back(preset.name);
    if (size != preset.name && !size.empty()) continue;
    BertShape shape;
    shape.num_layers = preset.num_layers;
    shape.num_heads = preset.num_heads;
    shape.hidden_size = preset.hidden_size;
    shape.intermediate_size = preset.intermediate_size;
    shape.vocab_size = size.empty() ? info.vocab_size : preset.vocab_size;
    return shape;
  }
  throw ConfigError("[model] size '" + size + "' is unknown; there are " + join(names));
}

BertHead head_named(const std::string& task) {
  if (task.empty() || task == "classify") return BertHead::classify;
  if (task == "masked_lm") return BertHead::masked_lm;
  throw ConfigError("[model] bert has no task '" + task + "'; set classify or masked_lm");
}

// `has_weights`: the model starts from weights, whose sizes are fixed.
void check_data(const BertShape& shape, const DataInfo& info, bool has_weights) {
  if (info.vocab_size < 1 || info.input_shape.size() != 1) {
    throw ConfigError(
        fmt::format("[model] bert reads one sequence of tokens a sample, and the inputs of this "
                    "data, of shape [{}], are none; give whole numbers of shape [T]",
                    fmt::join(info.input_shape, ", ")));
  }
  const auto enough = [&](const char* key, int64_t own, int64_t needed, const char* what,
                          const std::string& with_weights) {
    if (own >= needed) return;
    throw ConfigError(fmt::format("[model] {} {} is smaller than the data's {} {}; {}", key, own,
                                  needed, what,
                                  has_weights ? "these weights have no more: " + with_weights
                                              : fmt::format("raise model.{}", key)));
  };
  enough("vocab_size", shape.vocab_size, info.vocab_size, "tokens",
         "set data.train.tokenizer to theirs");
  enough("token_types", shape.token_types, info.token_types, "kinds of token",
         "give single texts (data.train.text_pair = \"\")");
  enough("context_length", shape.context_length, info.input_shape[0], "tokens of a sequence",
         fmt::format("set data.train.context = {}", shape.context_length));
  if (shape.pad_token >= shape.vocab_size) {
    throw ConfigError(
        fmt::format("[model] pad_token {} is none of the vocab_size {} tokens; set -1 for none",
                    shape.pad_token, shape.vocab_size));
  }
  if (shape.hidden_size % shape.num_heads != 0) {
    throw ConfigError(
        fmt::format("[model] hidden_size {} cannot be divided among num_heads {}; make it a "
                    "multiple of the heads",
                    shape.hidden_size, shape.num_heads));
  }
}

void take_sizes(BertShape& shape, const ModelOptions& options) {
  const auto take = [](int64_t& own, int64_t asked) {
    if (asked > 0) own = asked;
  };
  take(shape.num_layers, options.num_layers);
  take(shape.num_heads, options.num_heads);
  // A configured width gets the published ratio of intermediate_size to hidden_size.
  if (options.hidden_size > 0) shape.intermediate_size = 4 * options.hidden_size;
  take(shape.hidden_size, options.hidden_size);
  take(shape.intermediate_size, options.intermediate_size);
  take(shape.context_length, options.context_length);
  take(shape.token_types, options.token_types);
  take(shape.vocab_size, options.vocab_size);
  shape.pad_token = options.pad_token.value_or(0);
}

}  // namespace

BertShape bert_shape(const ModelOptions& options, const DataInfo& info) {
  BertShape shape = preset_named(options.size, info);
  take_sizes(shape, options);
  const double dropout = options.dropout.value_or(0.1);
  shape.embedding_dropout = options.embedding_dropout.value_or(dropout);
  shape.attention_dropout = options.attention_dropout.value_or(dropout);
  shape.residual_dropout = options.residual_dropout.value_or(dropout);
  shape.classifier_dropout = options.classifier_dropout.value_or(dropout);
  shape.layer_norm_eps = options.layer_norm_eps.value_or(shape.layer_norm_eps);
  shape.initializer_range = options.initializer_range.value_or(shape.initializer_range);
  if (!options.activation.empty()) shape.activation = options.activation;
  shape.head = head_named(options.task);
  check_data(shape, info, !options.from_hf.empty() || !options.init_from.empty());
  if (shape.head == BertHead::classify) shape.outputs = num_outputs(options, info);
  return shape;
}

}  // namespace tanren
