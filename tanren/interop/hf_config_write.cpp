#include "tanren/base/text.h"
#include "tanren/interop/hf_config.h"

#include "tanren/base/json_text.h"
#include "tanren/data/text/source_tokenizer.h"
#include "tanren/data/text/tokenizer.h"
#include "tanren/model/bert_shape.h"
#include "tanren/model/gpt2_shape.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string_view>

namespace tanren {

namespace {

using OrderedJson = nlohmann::ordered_json;

// Our names of activations → transformers'.
std::string hf_activation(const std::string& name) {
  return name == "gelu_tanh" ? "gelu_new" : name;
}

// The fields by which transformers names the classifier's outputs and picks their loss.
void describe_outputs(OrderedJson& json, int64_t outputs, const ModelOptions& model,
                      const DataInfo& info) {
  const bool is_bce = model.loss == "bce";
  // Sets transformers' name for sigmoid and binary cross-entropy, for any number of outputs.
  // Without it, transformers takes one output for a regression.
  if (is_bce) json["problem_type"] = "multi_label_classification";
  if (!is_bce && !info.class_labels) json["problem_type"] = "regression";
  // With two classes and one logit, the logit is that of class 1.
  const int64_t first = is_bce && info.class_labels ? 1 : 0;
  OrderedJson names = OrderedJson::object(), numbers = OrderedJson::object();
  for (int64_t i = 0; i < outputs; ++i) {
    const auto index = static_cast<size_t>(first + i);
    const std::string name =
        index < info.class_names.size() ? info.class_names[index] : fmt::format("LABEL_{}", index);
    names[to_text(i)] = name;
    numbers[name] = i;
  }
  json["id2label"] = names;
  json["label2id"] = numbers;
}

OrderedJson bert_json(const ModelOptions& model, const DataInfo& info) {
  const BertShape shape = bert_shape(model, info);
  const bool classifies = shape.head == BertHead::classify;
  OrderedJson json{
      {"architectures",
       OrderedJson::array({classifies ? "BertForSequenceClassification" : "BertForMaskedLM"})},
      {"model_type", "bert"},
      {"vocab_size", shape.vocab_size},
      {"hidden_size", shape.hidden_size},
      {"num_hidden_layers", shape.num_layers},
      {"num_attention_heads", shape.num_heads},
      {"intermediate_size", shape.intermediate_size},
      {"hidden_act", hf_activation(shape.activation)},
      {"hidden_dropout_prob", shape.residual_dropout},
      {"attention_probs_dropout_prob", shape.attention_dropout},
      {"max_position_embeddings", shape.context_length},
      {"type_vocab_size", shape.token_types},
      {"initializer_range", shape.initializer_range},
      {"layer_norm_eps", shape.layer_norm_eps},
      {"position_embedding_type", "absolute"},
      {"tie_word_embeddings", true}};
  json["pad_token_id"] = shape.pad_token >= 0 ? OrderedJson(shape.pad_token) : OrderedJson(nullptr);
  if (!classifies) return json;
  json["classifier_dropout"] = shape.classifier_dropout;
  describe_outputs(json, shape.outputs, model, info);
  return json;
}

// The token that AutoTokenizer fills batches up with; nullopt: none.
std::optional<int32_t> pad_of(const TokenizerFiles& files, const Tokenizer& tokenizer) {
  const auto id_in = [&](const nlohmann::json& json) -> std::optional<int32_t> {
    if (!json.is_object() || !json.contains("pad_token")) return std::nullopt;
    const nlohmann::json& token = json["pad_token"];
    const bool has_content = token.is_object() && token.contains("content");
    const nlohmann::json& text = has_content ? token["content"] : token;
    return text.is_string() ? tokenizer.id_of(text.get<std::string>()) : std::nullopt;
  };
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"}) {
    const auto file = files.find(name);
    if (file == files.end()) continue;
    nlohmann::json json = parse_json(file->second);
    if (std::string_view(name) == "tokenizer.json") {
      if (!json.is_object() || !json.contains("padding")) continue;
      json = nlohmann::json(json["padding"]);
    }
    if (const auto id = id_in(json)) return id;
  }
  return std::nullopt;
}

OrderedJson gpt2_json(const ModelOptions& model, const DataInfo& info) {
  const Gpt2Shape shape = gpt2_shape(model, info);
  constexpr int64_t kEndOfText = 50256;  // in OpenAI's vocabulary, and nowhere else
  const OrderedJson openai =
      shape.vocab_size > kEndOfText ? OrderedJson(kEndOfText) : OrderedJson(nullptr);
  OrderedJson end = openai, pad = openai;
  if (info.tokenizer != nullptr) {
    const auto tokenizer = load_tokenizer(*info.tokenizer, "tokenizer");
    const auto id = end_of_text(*tokenizer);
    end = id ? OrderedJson(*id) : OrderedJson(nullptr);
    const bool is_openai = tokenizer->id_of("<|endoftext|>") == std::optional<int32_t>(kEndOfText);
    if (!is_openai) pad = nullptr;
    if (const auto own = pad_of(*info.tokenizer, *tokenizer)) pad = *own;
  }
  const bool classifies = shape.outputs > 0;
  OrderedJson json{
      {"architectures",
       OrderedJson::array({classifies ? "GPT2ForSequenceClassification" : "GPT2LMHeadModel"})},
      {"model_type", "gpt2"},
      {"vocab_size", shape.vocab_size},
      {"n_embd", shape.hidden_size},
      {"n_layer", shape.num_layers},
      {"n_head", shape.num_heads},
      {"n_inner", shape.intermediate_size},
      {"n_positions", shape.context_length},
      {"activation_function", "gelu_new"},
      {"embd_pdrop", shape.embedding_dropout},
      {"attn_pdrop", shape.attention_dropout},
      {"resid_pdrop", shape.residual_dropout},
      {"initializer_range", shape.initializer_range},
      {"layer_norm_epsilon", shape.layer_norm_eps},
      {"bos_token_id", end},
      {"eos_token_id", end},
      {"tie_word_embeddings", true}};
  if (!classifies) return json;
  // transformers finds the last token by pad_token_id; without one, it takes one text at a time.
  json["pad_token_id"] = pad;
  describe_outputs(json, shape.outputs, model, info);
  return json;
}

}  // namespace

std::string hf_config_of(const ModelOptions& model, const DataInfo& info,
                         const std::string& dtype) {
  OrderedJson json = model.kind == "bert" ? bert_json(model, info) : gpt2_json(model, info);
  json["dtype"] = dtype;
  // Class names may come from folders, whose names can be any bytes.
  return json_text(json, 2) + "\n";
}

}  // namespace tanren
