#include "tanren/interop/hf_config.h"

#include "tanren/base/error.h"
#include "tanren/base/file.h"
#include "tanren/base/json_text.h"
#include "tanren/base/text.h"

#include <nlohmann/json.hpp>

#include <optional>

namespace tanren {

namespace {

using Json = nlohmann::json;

// The fields of one file, read with a default; each error names file and field.
class Fields {
 public:
  Fields(const std::string& text, std::string name) : file_(std::move(name)) {
    json_ = parse_json(text);
    if (json_.is_discarded() || !json_.is_object()) fail("is no JSON object; download it again");
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError("[model] " + file_ + " " + what);
  }

  int64_t count(const char* key, int64_t unset) const {
    const Json* value = find(key);
    if (value == nullptr) return unset;
    if (!value->is_number_integer() || value->get<int64_t>() < 1 ||
        value->get<int64_t>() > (int64_t{1} << 32)) {
      refuse(key, *value, "a size of 1 or more");
    }
    return value->get<int64_t>();
  }

  std::optional<double> number(const char* key, double low, double high) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number() || value->get<double>() < low || value->get<double>() >= high) {
      refuse(key, *value, "a number in the usual range");
    }
    return value->get<double>();
  }

  std::string text(const char* key, const std::string& unset) const {
    const Json* value = find(key);
    if (value == nullptr) return unset;
    if (!value->is_string()) refuse(key, *value, "a text");
    return value->get<std::string>();
  }

  // The field must be missing, null or `only`.
  void expect(const char* key, const Json& only) const {
    const Json* value = find(key);
    if (value != nullptr && *value != only)
      refuse(key, *value, json_text(only) + ", the one we compute");
  }

  // The number of classes of a transformers classifier.
  int64_t labels() const {
    const Json* names = find("id2label");
    return names != nullptr && names->is_object() ? static_cast<int64_t>(names->size())
                                                  : count("num_labels", 2);
  }

  // Whether the file says that it was written for the class `name`.
  bool is_written_for(const char* name) const {
    const Json* classes = find("architectures");
    return classes != nullptr && classes->is_array() && !classes->empty() &&
           classes->front() == name;
  }

  bool has(const char* key) const { return find(key) != nullptr; }

  std::optional<int64_t> token(const char* key) const {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer()) refuse(key, *value, "a token's number");
    return value->get<int64_t>();
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const char* key, const Json& value, const std::string& wanted) const {
    fail(fmt::format("has {} {}; it must be {}", key, json_text(value), wanted));
  }

  std::string file_;
  Json json_;
};

void set(int64_t& key, int64_t value) {
  if (key == 0) key = value;
}

template <typename T>
void set(std::optional<T>& key, const std::optional<T>& value, const T& unset) {
  if (!key) key = value.value_or(unset);
}

std::string activation_of(const Fields& json, const char* key, const std::string& unset) {
  std::string name = json.text(key, unset);
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  if (name == "swish") return "silu";
  for (const char* known : {"gelu", "relu", "tanh", "silu"}) {
    if (name == known) return name;
  }
  json.fail(std::string("has ") + key + " \"" + name +
            "\"; we compute gelu, gelu_new, relu, tanh and silu");
}

// A dropout that the user sets for the whole model overrides the file's.
void set_dropout(std::optional<double>& key, const ModelOptions& asked, const Fields& json,
                 const char* field, double unset) {
  if (asked.dropout) return;
  set(key, json.number(field, 0, 1), unset);
}

void read_bert(const Fields& json, ModelOptions& o) {
  json.expect("position_embedding_type", "absolute");
  json.expect("is_decoder", false);
  json.expect("add_cross_attention", false);
  json.expect("tie_word_embeddings", true);
  set(o.num_layers, json.count("num_hidden_layers", 12));
  set(o.num_heads, json.count("num_attention_heads", 12));
  set(o.hidden_size, json.count("hidden_size", 768));
  set(o.intermediate_size, json.count("intermediate_size", 3072));
  set(o.context_length, json.count("max_position_embeddings", 512));
  set(o.token_types, json.count("type_vocab_size", 2));
  set(o.vocab_size, json.count("vocab_size", 30522));
  set(o.pad_token, json.token("pad_token_id"), int64_t{0});
  const double hidden = json.number("hidden_dropout_prob", 0, 1).value_or(0.1);
  set_dropout(o.embedding_dropout, o, json, "hidden_dropout_prob", hidden);
  set_dropout(o.residual_dropout, o, json, "hidden_dropout_prob", hidden);
  set_dropout(o.attention_dropout, o, json, "attention_probs_dropout_prob", 0.1);
  set_dropout(o.classifier_dropout, o, json, "classifier_dropout", hidden);
  set(o.layer_norm_eps, json.number("layer_norm_eps", 0, 1), 1e-12);
  set(o.initializer_range, json.number("initializer_range", 0, 1e6), 0.02);
  if (o.activation.empty()) o.activation = activation_of(json, "hidden_act", "gelu");
}

void read_gpt2(const Fields& json, ModelOptions& o) {
  if (activation_of(json, "activation_function", "gelu_new") != "gelu_tanh") {
    json.expect("activation_function", "gelu_new");
  }
  json.expect("scale_attn_weights", true);
  json.expect("scale_attn_by_inverse_layer_idx", false);
  json.expect("add_cross_attention", false);
  json.expect("tie_word_embeddings", true);
  set(o.num_layers, json.count("n_layer", 12));
  set(o.num_heads, json.count("n_head", 12));
  set(o.hidden_size, json.count("n_embd", 768));
  set(o.intermediate_size, json.count("n_inner", 4 * o.hidden_size));
  set(o.context_length, json.count("n_positions", 1024));
  set(o.vocab_size, json.count("vocab_size", 50257));
  set_dropout(o.embedding_dropout, o, json, "embd_pdrop", 0.1);
  set_dropout(o.attention_dropout, o, json, "attn_pdrop", 0.1);
  set_dropout(o.residual_dropout, o, json, "resid_pdrop", 0.1);
  set(o.layer_norm_eps, json.number("layer_norm_epsilon", 0, 1), 1e-5);
  set(o.initializer_range, json.number("initializer_range", 0, 1e6), 0.02);
  if (o.task.empty() && json.is_written_for("GPT2ForSequenceClassification")) o.task = "classify";
}

}  // namespace

ModelOptions options_of_hf_config(const std::filesystem::path& file, const ModelOptions& asked) {
  return options_of_hf_text(read_file(file), file.string(), asked);
}

ModelOptions options_of_hf_text(const std::string& text, const std::string& name,
                                const ModelOptions& asked) {
  const Fields json(text, name);
  const std::string type = json.text("model_type", "");
  if (json.has("quantization_config")) {
    json.fail(
        "has a quantization_config, and we read floating weights; give the whole model that "
        "was converted");
  }
  ModelOptions options = asked;
  if (type == "bert") {
    read_bert(json, options);
  } else if (type == "gpt2") {
    read_gpt2(json, options);
  } else {
    json.fail("has model_type \"" + type + "\"; we build bert and gpt2");
  }
  options.kind = type;
  // If a head is appended, the model below it keeps its own number of outputs.
  if (options.append_head > 0) set(options.outputs, json.labels());
  return options;
}

}  // namespace tanren
