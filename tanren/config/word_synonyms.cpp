#include "tanren/config/synonyms.h"

namespace tanren {

namespace {

// Pairs of words for the same computation. A word is left out if its computation is only similar to
// ours, or differs by a default.
constexpr WordSynonym kWords[] = {
    {"precision.mode", "16", "fp16"},
    {"precision.mode", "16-mixed", "fp16"},
    {"precision.mode", "float16", "fp16"},
    {"precision.mode", "half", "fp16"},
    {"precision.mode", "bf16-mixed", "bf16"},
    {"precision.mode", "bfloat16", "bf16"},
    {"precision.mode", "32", "fp32"},
    {"precision.mode", "32-true", "fp32"},
    {"precision.mode", "float32", "fp32"},
    {"precision.mode", "float", "fp32"},
    {"precision.mode", "no", "fp32"},
    {"precision.mode", "64", "fp64"},
    {"precision.mode", "64-true", "fp64"},
    {"precision.mode", "float64", "fp64"},
    {"precision.mode", "double", "fp64"},
    {"precision.matmul", "tf32", "high"},
    {"run.device", "gpu", "cuda"},
    {"optimizer.kind", "adam", "adam"},  // L2 in the gradient: no adamw
    {"optimizer.kind", "adamw_torch", "adamw"},
    {"optimizer.kind", "adamw_torch_fused", "adamw"},
    {"schedule.kind", "constant_with_warmup", "constant"},
    {"model.loss", "ce", "cross_entropy"},
    {"model.loss", "crossentropyloss", "cross_entropy"},
    {"model.loss", "bce_with_logits", "bce"},
    {"model.loss", "mae", "l1"},
    {"model.kind", "gpt-2", "gpt2"},
    {"model.size", "small", "gpt2"},
    {"model.size", "medium", "gpt2-medium"},
    {"model.size", "large", "gpt2-large"},
    {"model.size", "xl", "gpt2-xl"},
    {"model.size", "18", "resnet18"},
    {"model.size", "34", "resnet34"},
    {"model.size", "50", "resnet50"},
    {"model.size", "101", "resnet101"},
    {"model.size", "152", "resnet152"},
    {"model.size", "11", "vgg11"},
    {"model.size", "13", "vgg13"},
    {"model.size", "16", "vgg16"},
    {"model.size", "19", "vgg19"},
    {"model.size", "11_bn", "vgg11_bn"},
    {"model.size", "13_bn", "vgg13_bn"},
    {"model.size", "16_bn", "vgg16_bn"},
    {"model.size", "19_bn", "vgg19_bn"},
    {"model.task", "classification", "classify"},
    {"model.task", "sequence_classification", "classify"},
    {"model.task", "bertforsequenceclassification", "classify"},
    {"model.task", "mlm", "masked_lm"},
    {"model.task", "masked-lm", "masked_lm"},
    {"model.task", "fill-mask", "masked_lm"},
    {"model.task", "bertformaskedlm", "masked_lm"},
    {"model.task", "causal_lm", "next_token"},
    {"model.task", "language_model", "next_token"},
    {"model.activation", "gelu_new", "gelu_tanh"},
    {"model.activation", "gelu_pytorch_tanh", "gelu_tanh"},
    {"model.activation", "swish", "silu"},
    {"model.norm", "batchnorm", "batch"},
    {"model.norm", "groupnorm", "group"},
    {"data.train.kind", "imagefolder", "images"},
    {"data.train.kind", "image_folder", "images"},
    {"data.train.kind", "aligned", "pairs"},
    {"data.train.kind", "image_pairs", "pairs"},
    {"data.train.kind", "bin", "tokens"},
    {"data.train.kind", "jsonl", "text_table"},
    {"data.train.kind", "json", "text_table"},
    {"data.train.kind", "tsv", "text_table"},
    {"data.train.kind", "text_classification", "text_table"},
    {"data.train.kind", "txt", "text"},
    {"data.train.kind", "bytes", "text"},
    {"data.train.crop", "centre", "center"},
    {"parallel.ranks", "ddp", "processes"},
    {"parallel.ranks", "distributed", "processes"},
    {"parallel.ranks", "distributeddataparallel", "processes"},
    {"parallel.ranks", "dp", "threads"},
    {"parallel.ranks", "dataparallel", "threads"},
    {"parallel.pipeline_schedule", "one_f_one_b", "1f1b"},
    {"parallel.compress", "float16", "fp16"},
    {"parallel.compress", "bfloat16", "bf16"},
    {"parallel.buffers", "average", "mean"},
    {"parallel.buffers", "broadcast", "first"},
    {"parallel.buffers", "sync", "synchronised"},
    {"parallel.buffers", "synchronized", "synchronised"},
};

std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

}  // namespace

std::span<const WordSynonym> word_synonyms() { return kWords; }

std::optional<std::string> word_synonym(std::string_view key, std::string_view word) {
  constexpr std::string_view kEval = "data.eval.";
  if (key.rfind(kEval, 0) == 0) {
    return word_synonym("data.train." + std::string(key.substr(key.rfind('.') + 1)), word);
  }
  const std::string said = lower_case(word);
  for (const auto& [known_key, known, ours] : kWords) {
    if (known_key == key && known == said) return std::string(ours);
  }
  return std::nullopt;
}

}  // namespace tanren
